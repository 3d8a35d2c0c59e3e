import { defineConfig } from "vite";

// One script, one style sheet and two fonts with fixed names, so that the server knows all files of the page.
export default defineConfig({
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    target: "es2022",
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
