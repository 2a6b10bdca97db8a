import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "-", maxRetries: 0 });
const weather = {
  type: "function",
  function: {
    name: "weather",
    description: "The weather in a city.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    parse: JSON.parse,
    function: ({ city }) => `sunny in ${city}`,
  },
};

for (const stream of [false, true]) {
  const messages = [{ role: "user", content: "What is the weather?" }];
  const runner = client.chat.completions.runTools({ model: "gpt-5", messages, tools: [weather], stream });
  console.log(await runner.finalContent());
}
