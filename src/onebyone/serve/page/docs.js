// The description of the API as a page.
import { applyTheme } from "./theme.js";

applyTheme();

function element(name, text = "", kind = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function example(schema) {
  // A value of the shape that a schema describes.
  if (schema.properties) return Object.fromEntries(Object.entries(schema.properties).map(([name, each]) => [name, example(each)]));
  if (schema.additionalProperties) return { name: example(schema.additionalProperties) };
  if (schema.items) return [example(schema.items)];
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (schema.contentEncoding || schema.format === "binary") return "…";
  return { string: "text", integer: 1, number: 0.5, boolean: false }[type] ?? {};
}

function article(path, verb, about) {
  const made = element("article", "", "card");
  const title = element("h2");
  title.append(element("span", verb.toUpperCase(), "verb"), element("code", path));
  made.append(title, element("p", about.summary));
  const list = element("dl");
  for (const each of about.parameters ?? []) list.append(element("dt", `?${each.name}=`), element("dd", each.description));
  for (const [kind, content] of Object.entries(about.requestBody?.content ?? {})) {
    const shape = content.schema.properties ? Object.keys(content.schema.properties).join(", ") : "the content of the file";
    list.append(element("dt", kind), element("dd", shape));
  }
  for (const [status, answer] of Object.entries(about.responses)) list.append(element("dt", status), element("dd", answer.description));
  made.append(list);
  const result = about.responses["200"].content?.["application/json"]?.schema;
  if (result?.properties) {
    const block = element("pre", JSON.stringify(example(result), null, 2));
    block.tabIndex = 0;
    made.append(block);
  }
  return made;
}

const description = await (await fetch("openapi.json")).json();
document.getElementById("about").textContent = description.info.description;
for (const [path, verbs] of Object.entries(description.paths)) {
  for (const [verb, about] of Object.entries(verbs)) document.getElementById("endpoints").append(article(path, verb, about));
}
