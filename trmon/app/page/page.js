// The list of runs, read from the API and read again when something happens.
const status = document.getElementById("status");
const table = document.querySelector("table");
const login = document.getElementById("login");
const [, , project, run] = location.pathname.split("/").map(decodeURIComponent);
const only = project ? `${project}/${run}` : null;

async function ask(path, options = {}) {
  const token = sessionStorage.getItem("token");
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(path, { ...options, headers });
  if (response.status === 401) {
    login.hidden = false;
    throw new Error("This service asks for a token that may read.");
  }
  if (!response.ok) throw new Error(`The service answered ${response.status}.`);
  return response;
}

function cell(text, className) {
  const element = document.createElement("td");
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

function rowOf(item) {
  const row = document.createElement("tr");
  const link = document.createElement("a");
  link.href = `/runs/${encodeURIComponent(item.project)}/${encodeURIComponent(item.run)}`;
  link.textContent = `${item.project}/${item.run}`;
  const name = document.createElement("th");
  name.scope = "row";
  name.append(link);
  const rate = item.mask_rate === null ? "unknown" : `${(100 * item.mask_rate).toFixed(1)} %`;
  row.append(
    name,
    cell(item.state, item.state),
    cell(item.last_step ?? "none", "number"),
    cell(rate, "number"),
    cell(item.firing.join(", ") || "none", item.firing.length ? "firing" : ""),
    cell(item.owner ?? ""),
  );
  return row;
}

async function show() {
  const path = only ? `/api/v1/runs/${encodeURIComponent(project)}/${encodeURIComponent(run)}` : "/api/v1/runs";
  const answer = await (await ask(path)).json();
  const items = only ? [answer] : answer.items;
  table.querySelector("tbody").replaceChildren(...items.map(rowOf));
  table.hidden = items.length === 0;
  document.getElementById("more").hidden = !answer.next;
  status.textContent = items.length ? `As of ${new Date().toLocaleTimeString()}` : "No run has reported yet.";
  login.hidden = true;
}

let due = null;
function showSoon() {
  due ??= setTimeout(async () => {
    due = null;
    await show().catch(complain);
  }, 500);
}

// Event streams of the browser cannot send a token, so the stream is read by hand.
async function follow() {
  const query = only ? `?run=${encodeURIComponent(only)}` : "";
  const reader = (await ask(`/api/v1/events${query}`)).body.pipeThrough(new TextDecoderStream()).getReader();
  await show();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("The service has gone; trying again.");
    if (value.includes("data:")) showSoon();
  }
}

function complain(error) {
  status.textContent = error.message;
}

async function live() {
  await follow().catch(complain);
  if (login.hidden) setTimeout(live, 2000);
}

login.addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", document.getElementById("token").value);
  login.hidden = true;
  live();
});

live();
