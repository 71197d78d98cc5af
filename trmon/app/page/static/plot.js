// uPlot, fetched with the first chart: the fleet needs none.

let loading = null;

export function plot() {
  loading ??= Promise.all([
    added("link", { rel: "stylesheet", href: "/static/vendor/uplot-1.6.32.css" }),
    added("script", { src: "/static/vendor/uplot-1.6.32.js" }),
  ]).then(() => window.uPlot);
  return loading;
}

function added(tag, properties) {
  return new Promise((done, failed) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.onload = done;
    element.onerror = () => failed(new Error(`${properties.src ?? properties.href} could not be read`));
    document.head.append(element);
  });
}
