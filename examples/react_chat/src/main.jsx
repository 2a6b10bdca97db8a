import { StrictMode, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { Chat } from "./Chat.jsx";
import { loadMessages } from "./server.js";
import "./style.css";

// The id of the chat is in the address, so that it can be loaded again and opened in another tab.
function App() {
  const [id] = useState(() => location.hash.slice(1) || crypto.randomUUID());
  const [messages, setMessages] = useState(null);
  useEffect(() => {
    location.hash = id;
    loadMessages(id).then(setMessages);
  }, [id]);
  return messages ? <Chat id={id} initialMessages={messages} /> : <p>Loading…</p>;
}

createRoot(document.getElementById("root")).render(<StrictMode><App /></StrictMode>);
