import { readFileSync } from "node:fs";
import { defineConfig, type Plugin } from "vite";

// `license` below writes those of the scripts; fonts have files of their own.
const fontLicenses: Plugin = {
  name: "font-licenses",
  generateBundle() {
    for (const font of ["inter", "jetbrains-mono"]) {
      const source = readFileSync(`node_modules/@fontsource-variable/${font}/LICENSE`);
      this.emitFile({ type: "asset", fileName: `${font}-license.txt`, source });
    }
  },
};

// One script, one style sheet and two fonts with fixed names, so that the server knows all files of the page.
export default defineConfig({
  base: "./",
  plugins: [fontLicenses],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    target: "es2022",
    license: { fileName: "licenses.md" },
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    outDir: "../src/batonkit/serve/studio/assets",
    emptyOutDir: true,
    rollupOptions: {
      output: {
        entryFileNames: "studio.js",
        assetFileNames: ({ names }) => {
          const name = names.join(" ");
          return name.includes(".css")
            ? "studio.css"
            : name.includes("inter")
              ? "inter.woff2"
              : "mono.woff2";
        },
      },
    },
  },
});
