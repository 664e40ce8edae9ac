#!/usr/bin/env python3
"""Asks a model that is served by OpenAI's own client: what it understands of answers, streams and errors.

usage: openai_client.py PORT MODEL
"""

import sys

import openai


def refused(how, **wish):
    try:
        how(**wish)
    except openai.APIStatusError as error:
        return type(error).__name__, error.status_code
    return None


def main(port, model):
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0, timeout=60)
    assert [x.id for x in client.models.list().data] == [model]
    wish = {"model": model, "prompt": "The licence", "max_tokens": 24, "seed": 1}
    whole = client.completions.create(**wish)
    assert whole.usage.prompt_tokens == 11 and whole.usage.completion_tokens == 24, whole.usage
    assert whole.choices[0].finish_reason == "length"
    pieces = [x.choices[0].text for x in client.completions.create(**wish, stream=True)]
    assert "".join(pieces) == whole.choices[0].text and len(pieces) > 2, pieces
    wish = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 24, "seed": 2}
    whole = client.chat.completions.create(**wish)
    text, usage = "", None
    for x in client.chat.completions.create(**wish, stream=True, stream_options={"include_usage": True}):
        text += (x.choices[0].delta.content or "") if x.choices else ""
        usage = x.usage or usage
    assert text == whole.choices[0].message.content, text
    assert usage == whole.usage, usage
    completions = client.completions.create
    assert refused(completions, model="other", prompt="a") == ("NotFoundError", 404)
    assert refused(completions, model=model, prompt="a", n=2) == ("BadRequestError", 400)
    assert refused(completions, model=model, prompt="a", max_tokens=10**6) == ("BadRequestError", 400)


if __name__ == "__main__":
    main(*sys.argv[1:])
