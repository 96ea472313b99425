"""History retrieval (paper, C.3): images of other traversals near a pose, by place, direction and what they see."""

from merope.data.history.building import IndexOptions, IndexReport, add_to_index
from merope.data.history.donors import NEIGHBOURING_LANE, donors
from merope.data.history.hits import HistoryFrame, Hit, Hits
from merope.data.history.index import HistoryIndex
from merope.data.history.paths import QueryPath
from merope.data.history.search import Search
from merope.data.history.shards import ClipRows, HistoryError, write_shard

__all__ = [
    "NEIGHBOURING_LANE",
    "ClipRows",
    "Hit",
    "HistoryError",
    "HistoryFrame",
    "HistoryIndex",
    "Hits",
    "IndexOptions",
    "IndexReport",
    "QueryPath",
    "Search",
    "add_to_index",
    "donors",
    "write_shard",
]
