/** JSON schemas of answers and arguments. */

export type Schema = {
  type?: string | string[];
  enum?: unknown[];
  properties?: Record<string, Schema>;
  required?: string[];
  title?: string;
  description?: string;
  default?: unknown;
  $ref?: string;
  $defs?: Record<string, Schema>;
  anyOf?: Schema[];
};

export function resolve(schema: Schema, root: Schema): Schema {
  if (schema.$ref?.startsWith("#/$defs/"))
    return resolve(root.$defs?.[schema.$ref.slice(8)] ?? {}, root);
  const known = schema.anyOf?.find((each) => each.type !== "null");
  return known ? { ...resolve(known, root), title: schema.title, default: schema.default } : schema;
}

/** The value of a text field for its schema. Throws if a number or JSON is invalid. */
export function fieldValue(text: string, schema: Schema): unknown {
  const type = Array.isArray(schema.type)
    ? schema.type.find((each) => each !== "null")
    : schema.type;
  if (type === "string") return text;
  if (type === "boolean") return text === "true";
  if (type === "integer" || type === "number") {
    const value = Number(text);
    if (text.trim() === "" || Number.isNaN(value)) throw new Error(`“${text}” is not a number`);
    return value;
  }
  return text === "" ? null : JSON.parse(text);
}
