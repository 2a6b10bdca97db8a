// The page and the server have one address, as in production: requests to these paths go to `penstock serve`.
const server = "http://127.0.0.1:8000";

export default {
  esbuild: { jsx: "automatic" },
  server: { proxy: { "/api": server, "/runs": server, "/threads": server } },
};
