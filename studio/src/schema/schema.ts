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
  items?: Schema;
  minimum?: number;
  maximum?: number;
};

export function resolve(schema: Schema, root: Schema): Schema {
  if (schema.$ref?.startsWith("#/$defs/"))
    return resolve(root.$defs?.[schema.$ref.slice(8)] ?? {}, root);
  const known = schema.anyOf?.find((each) => each.type !== "null");
  if (!known) return schema;
  const { title, default: value, description = known.description } = schema;
  return { ...resolve(known, root), title, default: value, description };
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

/** The type of a field in a few words, such as `integer from 1 to 3`. */
export function typeText(given: Schema, root: Schema): string {
  const schema = resolve(given, root);
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" or ");
  if (schema.type === "array" && schema.items) return `list of ${typeText(schema.items, root)}`;
  const type = [schema.type ?? "any JSON"].flat().join(" or ");
  const { minimum, maximum } = schema;
  const limits = [
    minimum === undefined ? "" : ` from ${minimum}`,
    maximum === undefined ? "" : ` to ${maximum}`,
  ];
  return type + limits.join("");
}

/** What a server says about answers that do not fit, by the field; about the answer as a whole at "". */
export function problemsOf(message: string, fields: string[]): Record<string, string> {
  const found = message.replace(/^the answer to `[^`]*` does not fit its schema: /, "");
  const field = fields.find((name) => [".", ":", "["].some((end) => found.startsWith(name + end)));
  return { [field ?? ""]: field ? found.slice(field.length).replace(/^: /, "") : found };
}
