import tseslint from "typescript-eslint";

export default tseslint.config({ ignores: ["src/api/api-types.ts"] }, ...tseslint.configs.strict, {
  rules: {
    "@typescript-eslint/no-non-null-assertion": "off",
    "one-var": ["error", "never"],
    // Prettier leaves long strings alone.
    "max-len": ["error", { code: 120 }],
  },
});
