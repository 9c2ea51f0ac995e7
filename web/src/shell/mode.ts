/** `gateway.ui`: whether the page has buttons that change something. Who may call is decided by tokens, not here. */
const said = document.querySelector<HTMLMetaElement>('meta[name="fetchbox-ui"]')?.content;

export const isReadOnly = said === "read";
