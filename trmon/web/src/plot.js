// Loads uPlot with the first chart: the fleet view does not need it.

let loading = null;

export function plot() {
  loading ??= read("/static/vendor/uplot-1.6.32.js").then(() => window.uPlot);
  return loading;
}

function read(src) {
  return new Promise((done, failed) => {
    const script = Object.assign(document.createElement("script"), { src });
    script.onload = done;
    script.onerror = () => failed(new Error(`cannot load ${src}`));
    document.head.append(script);
  });
}
