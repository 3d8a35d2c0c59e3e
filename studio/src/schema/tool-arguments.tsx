/** The arguments of a tool, as its schema describes them. */
import { resolve, typeText, type Schema } from "./schema";

interface Tool {
  name: string;
  description?: string;
  parameters?: unknown;
}

export function ToolArguments({ tool }: { tool: Tool }) {
  const root = (tool.parameters ?? {}) as Schema;
  const schema = resolve(root, root);
  const fields = Object.entries(schema.properties ?? {});
  return (
    <div class="arguments" role="note" aria-label={`Arguments of ${tool.name}`}>
      {tool.description && <p>{tool.description.split("\n")[0]}</p>}
      {fields.length === 0 && <p>It has no arguments.</p>}
      {fields.length > 0 && (
        <dl>
          {fields.map(([name, each]) => (
            <div>
              <dt>
                <code>{name}</code>
                {!schema.required?.includes(name) && <small> optional</small>}
              </dt>
              <dd>
                <code>{typeText(each, root)}</code> {resolve(each, root).description}
              </dd>
            </div>
          ))}
        </dl>
      )}
    </div>
  );
}
