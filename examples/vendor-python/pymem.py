"""The transport "pymem": port channels between processes of one host, by copies from
memory to memory. It says what it does and how; boundary.py carries the calls."""

import difflib
import json
import os
import struct
import threading
import zlib

import transport_pb2 as pb
from boundary import CLOSED, INVALID, PEER, UNSUPPORTED, Failure
from proxy import Proxy
from ring import Memory, check

KEY, ADDRESS = 1, 2
WIRE = struct.Struct("<4sIQQ")  # magic, what it is, two numbers; a checksum follows
MAGIC = b"PYM1"


def encode(what, a, b):
    body = WIRE.pack(MAGIC, what, a, b)
    return body + struct.pack("<I", zlib.crc32(body))


def decode(what, data, peer):
    """Reads what a peer sent: it may be anything."""
    if len(data) != WIRE.size + 4 or zlib.crc32(data[: WIRE.size]) != struct.unpack_from("<I", data, WIRE.size)[0]:
        raise Failure(PEER, "a parcel of another transport, or damaged", peer)
    magic, kind, a, b = WIRE.unpack_from(data)
    if magic != MAGIC or kind != what:
        raise Failure(PEER, "a parcel of type %d, expected %d" % (kind, what), peer)
    return a, b


class Registration:
    def __init__(self, fd, offset, size):
        self.fd, self.offset, self.size = fd, offset, size

    def close(self):
        os.close(self.fd)


class Endpoint:
    def __init__(self, rank, ranks):
        self.rank, self.ranks = rank, ranks

    def close(self):
        pass


class Connection(Endpoint):
    def __init__(self, endpoint, peer):
        self.endpoint, self.peer = endpoint, peer


class Pymem:
    NAME, VERSION = "pymem", "1.0.0"
    OPTIONS = [pb.Option(name="verbose", type="bool", default_value="false", help="Log every proxy.")]

    def __init__(self, control):
        self.control = control
        self.lock = threading.Lock()
        self.configured = False
        self.verbose = False
        self.made, self.last = {}, 0
        self.proxies, self.last_proxy = {}, 0

    # Options and description.

    def Schema(self, _, __):
        return pb.SchemaResponse(options=self.OPTIONS)

    def Configure(self, request, _):
        try:
            options = json.loads(request.options or b"{}")
        except ValueError as error:
            raise Failure(INVALID, "options: %s" % error)
        if not isinstance(options, dict):
            raise Failure(INVALID, "options: expected a JSON object")
        known = [o.name for o in self.OPTIONS]
        for key in options:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1) or known
                raise Failure(INVALID, 'unknown option "%s": did you mean "%s"?' % (key, near[0]))
        verbose = str(options.get("verbose", "false")).lower()  # variables of the environment are strings
        if verbose not in ("true", "false"):
            raise Failure(INVALID, 'option "verbose": expected true or false, got %r' % options["verbose"])
        with self.lock:
            if self.configured:
                raise Failure(INVALID, "configured before")
            self.configured, self.verbose = True, verbose == "true"
        return pb.ConfigureResponse(description=self._description(), options=self.OPTIONS)

    def _description(self):
        return pb.Description(name=self.NAME, version=self.VERSION, channels=[pb.KIND_PORT], signal="direct",
                              needs=["memfd"], proxy="plugin")

    def Describe(self, _, __):
        self._ready()
        return pb.DescribeResponse(description=self._description())

    def _ready(self):
        if not self.configured:
            raise Failure(INVALID, "expected Configure before any other call")

    # The objects that have an id.

    def _keep(self, made):
        with self.lock:
            self.last += 1
            self.made[self.last] = made
            return self.last

    def _find(self, kind, number):
        """What an id names. The caller holds the lock for as long as it uses it."""
        made = self.made.get(number)
        if type(made) is kind:
            return made
        if made is None and 0 < number <= self.last:
            raise Failure(CLOSED, "id %d" % number)
        raise Failure(INVALID, "id %d: expected that of a %s" % (number, kind.__name__.lower()))

    def Close(self, request, _):
        self._ready()
        with self.lock:
            gone = [request.id]
            if isinstance(self.made.get(request.id), Endpoint):
                gone += [n for n, m in self.made.items() if type(m) is Connection and m.endpoint == request.id]
            for number in gone:
                made = self.made.pop(number, None)
                if made:
                    made.close()
        return pb.CloseResponse()

    # Memory.

    def Register(self, request, _):
        self._ready()
        segment, own = request.segment, None
        fds = [(share, self.control.claim(request.call, share.fd)) for share in segment.shares if share.fd]
        try:
            if segment.bytes == 0:
                raise Failure(INVALID, "0 bytes")
            if segment.device.type != "host":
                raise Failure(UNSUPPORTED, "memory of %s: expected host memory" % segment.device.type)
            own = next((fd for share, fd in fds if share.kind == "memfd"), None)
            if own is None:
                raise Failure(UNSUPPORTED, "memory without a memfd")
            check(own, segment.offset, segment.bytes, INVALID)
            number = self._keep(Registration(os.dup(own), segment.offset, segment.bytes))
            key = pb.Parcel(data=encode(KEY, segment.offset, segment.bytes))
            key.shares.add(kind="memfd", fd=self.control.send(request.call, [own])[0])
            return pb.RegisterResponse(id=number, key=key)
        finally:
            for _, fd in fds:
                os.close(fd)

    def _peers_memory(self, call, key, peer):
        """The descriptor and the range behind a key; the caller closes the descriptor."""
        fds = [self.control.claim(call, share.fd) for share in key.shares if share.fd]
        try:
            offset, size = decode(KEY, key.data, peer)
            if len(key.shares) != 1 or len(fds) != 1 or key.shares[0].kind != "memfd":
                raise Failure(PEER, "a key with other shares than one memfd", peer)
            check(fds[0], offset, size, PEER)
        except Failure:
            for fd in fds:
                os.close(fd)
            raise
        return fds[0], offset, size

    # Links.

    def Listen(self, request, _):
        self._ready()
        ranks = list(request.ranks)
        if request.kind not in pb.Kind.values() or request.kind == pb.KIND_UNSPECIFIED:
            raise Failure(INVALID, "a link of kind %d" % request.kind)
        if request.kind != pb.KIND_PORT:
            raise Failure(UNSUPPORTED, "port channels only")
        if len(ranks) != 2 or request.rank not in ranks or ranks[0] < 0 or ranks[0] >= ranks[1]:
            raise Failure(INVALID, "ranks %s with own rank %d: expected two, ascending" % (ranks, request.rank))
        number = self._keep(Endpoint(request.rank, ranks))
        address = pb.Parcel(data=encode(ADDRESS, request.kind, request.rank))
        return pb.ListenResponse(id=number, address=address, reach=["host:" + request.facts.host])

    def Connect(self, request, _):
        self._ready()
        for peer in request.peers:  # an address of ours has no descriptors; take those of others
            for share in peer.address.shares:
                if share.fd:
                    os.close(self.control.claim(request.call, share.fd))
        with self.lock:
            end = self._find(Endpoint, request.local)
            rank, ranks = end.rank, end.ranks
        if len(request.peers) != 1 or request.peers[0].rank not in ranks or request.peers[0].rank == rank:
            raise Failure(INVALID, "expected the other one of the ranks %s as peer" % ranks)
        peer = request.peers[0]
        kind, theirs = decode(ADDRESS, peer.address.data, peer.rank)
        if kind != pb.KIND_PORT or theirs != peer.rank or peer.address.shares:
            raise Failure(PEER, "the address of another link, or rank", peer.rank)
        return pb.ConnectResponse(conn=self._keep(Connection(request.local, peer.rank)))

    def Attach(self, request, _):
        """Nothing to map: the proxy reaches memory by its key. But what is wrong with a key
        is said here already."""
        self._ready()
        with self.lock:
            peer = self._find(Connection, request.conn).peer
            if request.local:
                self._find(Registration, request.local)
        if len(request.keys) != 1:
            raise Failure(INVALID, "%d keys: expected that of the peer" % len(request.keys))
        os.close(self._peers_memory(request.call, request.keys[0], peer)[0])
        return pb.AttachResponse()

    # Proxies.

    def NewProxy(self, _, __):
        self._ready()
        with self.lock:
            self.last_proxy += 1
            self.proxies[self.last_proxy] = Proxy()
            return pb.NewProxyResponse(proxy=self.last_proxy)

    def _proxy(self, number):
        with self.lock:
            if number not in self.proxies:
                raise Failure(CLOSED, "proxy %d" % number)
            return self.proxies[number]

    def BindMemory(self, request, _):
        proxy = self._proxy(request.proxy)
        if bool(request.local) == bool(request.conn):
            raise Failure(INVALID, "expected either own memory or a peer's")
        if request.local:
            with self.lock:
                own = self._find(Registration, request.local)
                memory = Memory(own.fd, own.offset, own.size, INVALID)
        else:
            memory = self._open(request)
        self._bind(memory, lambda: proxy.bind_memory(request.slot, memory, bool(request.local)))
        return pb.BindMemoryResponse()

    def BindSemaphore(self, request, _):
        proxy = self._proxy(request.proxy)
        memory = self._open(request)
        self._bind(memory, lambda: proxy.bind_semaphore(request.slot, memory, request.offset))
        return pb.BindSemaphoreResponse()

    def _open(self, request):
        with self.lock:
            peer = self._find(Connection, request.conn).peer
        fd, offset, size = self._peers_memory(request.call, request.key, peer)
        try:
            return Memory(fd, offset, size, PEER)
        finally:
            os.close(fd)

    @staticmethod
    def _bind(memory, bind):
        try:
            bind()
        except Failure:
            memory.close()
            raise

    def StartProxy(self, request, _):
        proxy = self._proxy(request.proxy)
        if request.ring.kind != "memfd" or not request.ring.fd:
            raise Failure(INVALID, "a ring in a share of kind %s: expected memfd" % request.ring.kind)
        fd = self.control.claim(request.call, request.ring.fd)
        try:
            proxy.start(fd)
        finally:
            os.close(fd)
        return pb.StartProxyResponse()

    def WaitProxy(self, request, context):
        proxy = self._proxy(request.proxy)
        while context.is_active() and not proxy.ended.wait(0.05):
            pass
        if proxy.cause:
            raise proxy.cause
        return pb.WaitProxyResponse()

    def StopProxy(self, request, context):
        proxy = self._proxy(request.proxy)
        if not proxy.stop(context.time_remaining()):
            raise Failure(1, "the proxy did not end in time")
        with self.lock:
            self.proxies.pop(request.proxy, None)
        answer = pb.StopProxyResponse()
        if cause := proxy.cause:
            answer.cause.CopyFrom(pb.Failure(**{"class": cause.klass}, message=str(cause), blames=[
                pb.Blame(op="proxy", transport=self.NAME, peer=cause.peer)]))
        return answer
