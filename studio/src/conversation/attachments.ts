/** Files that are sent with a message. */

export interface Attachment {
  name: string;
  type: string;
  data: string;
}

export async function readFile(file: File): Promise<Attachment> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000)
    text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return { name: file.name, type: file.type || "application/octet-stream", data: btoa(text) };
}

/** The input of a run: text, or a message with parts if there are files. */
export function inputWith(text: string, files: Attachment[]): unknown {
  if (!files.length) return text;
  const parts = files.map((file) =>
    file.type.startsWith("image/")
      ? { type: "image", data: file.data, media_type: file.type }
      : { type: "file", data: file.data, media_type: file.type, name: file.name },
  );
  return [{ role: "user", content: [{ type: "text", text }, ...parts] }];
}
