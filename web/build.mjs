// Builds the operators' page into gateway/ui/: files named by their content, and the page that names them.
//
//   node build.mjs [DIR]
//
// The same sources give the same bytes; `sources.sha256` lets a test see, without Node, that the sources are the ones
// that were built.
import { createHash } from "node:crypto";
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(root, "../gateway/ui");
const inputs = ["build.mjs", "index.html", "package.json", "package-lock.json", "tsconfig.json", "src"];

rmSync(out, { recursive: true, force: true });
mkdirSync(join(out, "assets"), { recursive: true });
const bundled = await build({
  absWorkingDir: root,
  entryPoints: { app: "src/main.tsx", style: "src/style/index.css", icon: "src/icon.svg" },
  loader: { ".svg": "copy" },
  bundle: true,
  minify: true,
  format: "esm",
  target: ["chrome123", "firefox120", "safari17.5"],
  jsx: "automatic",
  jsxImportSource: "preact",
  entryNames: "[name]-[hash]",
  legalComments: "none",
  outdir: join(out, "assets"),
  metafile: true,
});
const built = Object.keys(bundled.metafile.outputs).map((path) => basename(path));
const named = (start, end) => built.find((name) => name.startsWith(`${start}-`) && name.endsWith(end));
const page = readFileSync(join(root, "index.html"), "utf8")
  .replace("app.js", named("app", ".js"))
  .replace("style.css", named("style", ".css"))
  .replace("icon.svg", named("icon", ".svg"));
writeFileSync(join(out, "index.html"), page);
cpSync(join(root, "node_modules/preact/LICENSE"), join(out, "preact.LICENSE"));
writeFileSync(join(out, "sources.sha256"), `${digest()}\n`);

/** SHA-256 over `name NUL content NUL` of every source, sorted by name. */
function digest() {
  const hash = createHash("sha256");
  for (const name of inputs.flatMap(files).sort()) {
    hash.update(`${name}\0`).update(readFileSync(join(root, name))).update("\0");
  }
  return hash.digest("hex");
}

function files(name) {
  if (!statSync(join(root, name)).isDirectory()) return [name];
  return readdirSync(join(root, name), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name !== "schema.d.ts")
    .map((entry) => relative(root, join(entry.parentPath, entry.name)));
}
