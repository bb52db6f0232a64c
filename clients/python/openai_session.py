"""Keeps the history of a session of the OpenAI Agents SDK in the context service.

    session = ContextSession("conversation-7", Service("127.0.0.1:7420"))
    await Runner.run(agent, "Hello", session=session)
"""

import asyncio
import uuid

from agents.memory import SessionSettings
from service import Service, finished
from transcript import Transcript


class ContextSession:
    """A `Session`: its items are the entries of the thread `<prefix>/<session_id>`."""

    def __init__(self, session_id, service: Service, *, prefix="openai-agents", session_settings=None):
        self.session_id = session_id
        self.session_settings = session_settings or SessionSettings()
        self._transcript = Transcript(service, f"{prefix}/{session_id}", {"framework": "openai-agents", "session": session_id})

    async def get_items(self, limit=None):
        """Returns up to `limit` of the newest items, oldest first. `limit` defaults to that of the session settings; if
        neither is set, it returns all items."""
        limit = self.session_settings.limit if limit is None else limit
        return await asyncio.to_thread(self._transcript.newest, limit)

    async def add_items(self, items):
        """Adds items in batches, as `Transcript.append` does. A batch is stored completely or not at all."""
        await finished(self._transcript.append, [(uuid.uuid4().hex, item) for item in items])

    async def pop_item(self):
        """Removes the newest item and returns it; None if there is none."""
        return await finished(self._transcript.pop)

    async def clear_session(self):
        """Removes all items."""
        await finished(self._transcript.clear)
