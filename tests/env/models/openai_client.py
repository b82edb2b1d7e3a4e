"""The OpenAI SDK: Chat Completions and Responses, raw and with its helpers. See `scene.py`."""

import json

from openai import OpenAI, pydantic_function_tool
from pydantic import BaseModel

import scene
from scene import ADD, GREET, INTRODUCE, MODEL

client = OpenAI(base_url=f"{scene.BASE_URL}/v1", api_key=scene.API_KEY, max_retries=0)
CHAT_TOOL = {
    "type": "function",
    "function": {"name": "add", "description": "Adds.", "parameters": scene.ADD_SCHEMA},
}
RESPONSES_TOOL = {"type": "function", "name": "add", "description": "Adds.",
                  "parameters": scene.ADD_SCHEMA, "strict": True}


class Person(BaseModel):
    name: str
    age: int


class Add(BaseModel):
    """Adds."""

    a: int
    b: int


def user(text: str) -> dict:
    return {"role": "user", "content": text}


class Chat:
    @staticmethod
    def tokens(usage):
        return [usage.prompt_tokens, usage.completion_tokens]

    def plain(self, text=GREET):
        answer = client.chat.completions.create(model=MODEL, messages=[user(text)])
        choice = answer.choices[0]
        return {"text": choice.message.content, "finish": choice.finish_reason,
                "tokens": self.tokens(answer.usage)}

    def streamed(self):
        pieces, tokens = [], None
        for chunk in client.chat.completions.create(
            model=MODEL, messages=[user(GREET)], stream=True,
            stream_options={"include_usage": True},
        ):
            pieces += [choice.delta.content for choice in chunk.choices if choice.delta.content]
            tokens = self.tokens(chunk.usage) if chunk.usage else tokens
        return {"text": "".join(pieces), "pieces": len(pieces), "tokens": tokens}

    def helper(self):
        with client.chat.completions.stream(
            model=MODEL, messages=[user(GREET)], stream_options={"include_usage": True}
        ) as stream:
            # The first chunk has a role and no text.
            pieces = [event.delta for event in stream
                      if event.type == "content.delta" and event.delta]
            answer = stream.get_final_completion()
        assert "".join(pieces) == answer.choices[0].message.content
        return {"text": answer.choices[0].message.content, "pieces": len(pieces),
                "tokens": self.tokens(answer.usage)}

    def parsed(self):
        answer = client.chat.completions.parse(
            model=MODEL, messages=[user(INTRODUCE)], response_format=Person
        )
        return answer.choices[0].message.parsed.model_dump()

    def run_tools(self, next_message):
        messages, called = [user(ADD)], []
        while (message := next_message(messages)).tool_calls:
            messages.append(message)
            for call in message.tool_calls:
                name, arguments = call.function.name, json.loads(call.function.arguments)
                called.append([name, arguments])
                messages.append({"role": "tool", "tool_call_id": call.id,
                                 "content": scene.add(name, arguments)})
        return {"called": called, "text": message.content}

    def tools(self):
        return self.run_tools(lambda messages: client.chat.completions.create(
            model=MODEL, messages=messages, tools=[CHAT_TOOL]
        ).choices[0].message)

    def tools_streamed(self):
        def next_message(messages):
            tool = pydantic_function_tool(Add, name="add")
            with client.chat.completions.stream(
                model=MODEL, messages=messages, tools=[tool]
            ) as stream:
                return stream.get_final_completion().choices[0].message

        return self.run_tools(next_message)


class Responses:
    @staticmethod
    def tokens(usage):
        return [usage.input_tokens, usage.output_tokens]

    def plain(self, text=GREET):
        answer = client.responses.create(model=MODEL, input=text)
        return {"text": answer.output_text, "finish": answer.status,
                "tokens": self.tokens(answer.usage)}

    def streamed(self):
        pieces, tokens = [], None
        for event in client.responses.create(model=MODEL, input=GREET, stream=True):
            if event.type == "response.output_text.delta":
                pieces.append(event.delta)
            elif event.type == "response.completed":
                tokens = self.tokens(event.response.usage)
        return {"text": "".join(pieces), "pieces": len(pieces), "tokens": tokens}

    def helper(self):
        with client.responses.stream(model=MODEL, input=GREET) as stream:
            pieces = [event.delta for event in stream
                      if event.type == "response.output_text.delta"]
            answer = stream.get_final_response()
        assert "".join(pieces) == answer.output_text
        return {"text": answer.output_text, "pieces": len(pieces),
                "tokens": self.tokens(answer.usage)}

    def parsed(self):
        answer = client.responses.parse(model=MODEL, input=INTRODUCE, text_format=Person)
        return answer.output_parsed.model_dump()

    def run_tools(self, next_response):
        items, called = [user(ADD)], []
        while True:
            answer = next_response(items)
            items += answer.output
            calls = [item for item in answer.output if item.type == "function_call"]
            if not calls:
                return {"called": called, "text": answer.output_text}
            for call in calls:
                arguments = json.loads(call.arguments)
                called.append([call.name, arguments])
                items.append({"type": "function_call_output", "call_id": call.call_id,
                              "output": scene.add(call.name, arguments)})

    def tools(self):
        return self.run_tools(lambda items: client.responses.create(
            model=MODEL, input=items, tools=[RESPONSES_TOOL]
        ))

    def tools_streamed(self):
        def next_response(items):
            with client.responses.stream(
                model=MODEL, input=items, tools=[RESPONSES_TOOL]
            ) as stream:
                return stream.get_final_response()

        return self.run_tools(next_response)


def scenes(api) -> dict:
    return {
        "plain": api.plain(),
        "streamed": api.streamed(),
        "helper": api.helper(),
        "parsed": api.parsed(),
        "tools": api.tools(),
        "tools_streamed": api.tools_streamed(),
        "refusals": scene.refusals(api.plain),
    }


scene.report({"chat": scenes(Chat()), "responses": scenes(Responses())})
