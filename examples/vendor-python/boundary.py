"""The process boundary: handshake, control socket, errors and the gRPC service.

Everything here follows from docs/plugin-protocol.md and knows nothing of the transport
that it serves. Call take_over() before anything else can print.
"""

import array
import json
import os
import signal
import socket
import struct
import sys
import threading
from concurrent import futures

COOKIE = "2f0e9c55-1f6b-4f0c-9b51-6d1b4a2f7c3e"
VERSION = 1
MESSAGE = 64 << 20
HEAD = struct.Struct("<4sBBHQ")  # magic, version, kind, count, call
DESCRIPTORS, END = 1, 2
MOST = 64  # descriptors of a packet
ARRIVAL = 10.0  # seconds that a call waits for its descriptors

UNAVAILABLE, UNSUPPORTED, INVALID, PEER, CLOSED = 1, 2, 3, 4, 5
NAMES = {UNAVAILABLE: "unavailable", UNSUPPORTED: "unsupported", INVALID: "invalid", PEER: "peer failed", CLOSED: "closed"}


def take_over():
    """Moves descriptor 1 away and returns it: the rest of what is printed goes to the log."""
    if os.environ.get("MSCCLPP_TRANSPORT_PLUGIN") != COOKIE:
        sys.stderr.write("This is a transport plugin of mscclpp-go; it is started by a job.\n")
        sys.exit(2)
    handshake = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return handshake


def outlive_signals():
    """Ignores what resource managers send to all processes of a job. The kernel sends
    SIGTERM for the death of the parent, too; getppid() distinguishes the two."""
    host = os.getppid()

    def terminated(*_):
        if os.getppid() != host:
            os._exit(0)

    signal.signal(signal.SIGTERM, terminated)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def log(level, message, **fields):
    print(json.dumps(dict(level=level, msg=message, **fields)), file=sys.stderr, flush=True)


class Failure(Exception):
    """An error of a class, which the host acts on. peer is the rank to blame, or -1."""

    def __init__(self, klass, text, peer=-1):
        super().__init__("%s: %s" % (text, NAMES[klass]))
        self.klass, self.peer = klass, peer


class Control:
    """The control socket. Descriptors that arrive belong to calls until they are claimed."""

    def __init__(self, fd, ended):
        os.set_inheritable(fd, False)
        self.sock = socket.socket(fileno=fd)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.sending = threading.Lock()
        self.last = 0
        self.changed = threading.Condition()
        self.held = {}  # call -> {number: fd}
        self.lost = set()  # calls whose descriptors the kernel dropped
        self.ended = ended
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self):
        try:
            while self._receive_one():
                pass
        finally:
            self.ended()

    def _receive_one(self):
        room = socket.CMSG_SPACE(4 * MOST) + socket.CMSG_SPACE(12)
        data, control, flags, _ = self.sock.recvmsg(HEAD.size + 8 * MOST + 1, room, socket.MSG_CMSG_CLOEXEC)
        fds, uid = array.array("i"), None
        for level, kind, body in control:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(body[: len(body) - len(body) % 4])
            elif level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                uid = struct.unpack("iII", body)[1]
        numbers = self._numbers(data)
        if not data or numbers is None or uid != os.getuid():
            if data:
                log("ERROR", "a packet of the control socket is malformed, or of another user")
            return False
        kind, call = data[5], HEAD.unpack_from(data)[4]
        with self.changed:
            if kind == END:
                self._close(call)
                close_all(fds)
            elif flags & socket.MSG_CTRUNC or len(fds) != len(numbers):
                close_all(fds)
                self.lost.add(call)
            else:
                self.held.setdefault(call, {}).update(zip(numbers, fds))
            self.changed.notify_all()
        return True

    @staticmethod
    def _numbers(data):
        """The numbers in a packet, None if anything is wrong with it."""
        if len(data) < HEAD.size:
            return None
        magic, version, kind, n, _ = HEAD.unpack_from(data)
        if magic != b"MSFD" or version != 1 or len(data) != HEAD.size + 8 * n:
            return None
        if not (kind == DESCRIPTORS and 1 <= n <= MOST or kind == END and n == 0):
            return None
        numbers = struct.unpack_from("<%dQ" % n, data, HEAD.size)
        return numbers if 0 not in numbers and len(set(numbers)) == n else None

    def claim(self, call, number):
        """Takes a descriptor that a request cites; the caller closes it."""
        with self.changed:
            self.changed.wait_for(lambda: number in self.held.get(call, {}) or call in self.lost, timeout=ARRIVAL)
            if call in self.lost:
                raise Failure(UNAVAILABLE, "descriptors were lost: raise the limit of open files (ulimit -n)")
            if number not in self.held.get(call, {}):
                raise Failure(INVALID, "descriptor %d of call %d has not arrived" % (number, call))
            return self.held[call].pop(number)

    def end(self, call):
        """Closes what is left of a call."""
        with self.changed:
            self._close(call)

    def _close(self, call):
        close_all(self.held.pop(call, {}).values())
        self.lost.discard(call)

    def send(self, call, fds):
        """Sends descriptors on behalf of a call and returns their numbers."""
        with self.sending:
            numbers = list(range(self.last + 1, self.last + 1 + len(fds)))
            self.last += len(fds)
            for at in range(0, len(fds), MOST):
                part = numbers[at : at + MOST]
                data = HEAD.pack(b"MSFD", 1, DESCRIPTORS, len(part), call) + struct.pack("<%dQ" % len(part), *part)
                rights = array.array("i", fds[at : at + MOST])
                self.sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        return numbers


def close_all(fds):
    for fd in fds:
        os.close(fd)


def serve(transport, control, handshake, path):
    """Answers the host until the process ends."""
    import grpc
    import transport_pb2 as pb

    codes = {
        UNAVAILABLE: grpc.StatusCode.FAILED_PRECONDITION, UNSUPPORTED: grpc.StatusCode.UNIMPLEMENTED,
        INVALID: grpc.StatusCode.INVALID_ARGUMENT, PEER: grpc.StatusCode.ABORTED, CLOSED: grpc.StatusCode.NOT_FOUND,
    }

    def handler(name):
        method = getattr(transport, name)

        def call(request, context):
            try:
                return method(request, context)
            except Failure as failure:
                blame = pb.Blame(op=name, transport=transport.NAME, peer=failure.peer)
                detail = pb.Failure(**{"class": failure.klass}, message=str(failure), blames=[blame])
                context.set_trailing_metadata((("mscclpp-failure-bin", detail.SerializeToString()),))
                context.abort(codes[failure.klass], str(failure))
            finally:
                if number := getattr(request, "call", 0):
                    control.end(number)

        return grpc.unary_unary_rpc_method_handler(
            call, request_deserializer=getattr(pb, name + "Request").FromString,
            response_serializer=lambda message: message.SerializeToString())

    service = pb.DESCRIPTOR.services_by_name["TransportService"]
    names = [m.name for m in service.methods if hasattr(transport, m.name)]
    # WaitProxy occupies a thread for as long as its proxy lives.
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=256), options=[
        ("grpc.max_receive_message_length", MESSAGE), ("grpc.max_send_message_length", MESSAGE)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, {n: handler(n) for n in names}),))
    server.add_insecure_port("unix:" + path)
    server.start()
    print("1|%d|unix|%s|grpc" % (VERSION, path), file=handshake, flush=True)
    handshake.close()
    server.wait_for_termination()
