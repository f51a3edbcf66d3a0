"""Checks traces by Perfetto's own protobuf definitions: see scripts/perfetto.sh."""

import sys

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent


def unknown(message):
    """Whether a message has fields that the definitions do not know, at any depth."""
    from google.protobuf import unknown_fields

    if len(unknown_fields.UnknownFieldSet(message)):
        return True
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            if any(map(unknown, value if field.is_repeated else [value])):
                return True
    return False


def check(data):
    """What is wrong with a trace, as a list of texts."""
    trace = Trace()
    try:
        trace.ParseFromString(data)
    except Exception as e:  # the class is private to the library
        return ["it cannot be parsed: %s" % e]
    wrong = []
    if not trace.packet:
        return ["it has no packets"]
    if unknown(trace):
        wrong.append("it has fields that Perfetto does not define")
    if not trace.packet[0].sequence_flags & 1:
        wrong.append("the first packet does not begin the state of its sequence")
    tracks, last, stacks = {}, {}, {}
    starts, ends = {}, {}
    for n, packet in enumerate(trace.packet):
        if not packet.trusted_packet_sequence_id:
            wrong.append("packet %d is of no sequence" % n)
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.uuid in tracks or not track.uuid:
                wrong.append("track %d is described twice, or has no number" % track.uuid)
            if not (track.name or track.process.process_name):
                wrong.append("track %d has no name" % track.uuid)
            if not track.HasField("process") and track.parent_uuid not in tracks:
                wrong.append("track %d has a parent that is not described before it" % track.uuid)
            tracks[track.uuid] = track
        if not packet.HasField("track_event"):
            continue
        event, at = packet.track_event, packet.timestamp
        where = "packet %d" % n
        if event.track_uuid not in tracks:
            wrong.append("%s is on a track that is not described" % where)
        if not packet.HasField("timestamp"):
            wrong.append("%s has no time" % where)
        if at < last.get(event.track_uuid, 0):
            wrong.append("%s: time runs back on its track" % where)
        last[event.track_uuid] = at
        stack = stacks.setdefault(event.track_uuid, [])
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            if not event.name:
                wrong.append("%s: a slice without a name" % where)
            stack.append(event)
        elif event.type == TrackEvent.TYPE_SLICE_END:
            if not stack:
                wrong.append("%s: an end without a beginning" % where)
            else:
                stack.pop()
        elif event.type != TrackEvent.TYPE_INSTANT:
            wrong.append("%s: an event of type %d" % (where, event.type))
        for flow in event.flow_ids:
            if flow in starts:
                wrong.append("%s: flow %d begins twice" % (where, flow))
            starts[flow] = at
        for flow in event.terminating_flow_ids:
            if flow in ends:
                wrong.append("%s: flow %d ends twice" % (where, flow))
            ends[flow] = at
    for track, stack in stacks.items():
        for event in stack:  # one that is still in progress says so
            notes = {x.name: x.int_value for x in event.debug_annotations}
            if notes.get("ended", 1):
                wrong.append("a slice %r on track %d has no end" % (event.name, track))
    for flow in starts.keys() ^ ends.keys():
        wrong.append("flow %d has one end only" % flow)
    for flow in starts.keys() & ends.keys():
        if starts[flow] > ends[flow]:
            wrong.append("flow %d runs back in time" % flow)
    return wrong


def events(trace, kind=None):
    return [p for p in trace.packet if p.HasField("track_event") and (kind is None or p.track_event.type == kind)]


def with_flow(trace, field):
    return next(p for p in trace.packet if p.HasField("track_event") and getattr(p.track_event, field))


def drop(trace, packet):
    kept = [p for p in trace.packet if p is not packet]
    copies = [type(p).FromString(p.SerializeToString()) for p in kept]
    del trace.packet[:]
    trace.packet.extend(copies)


def broken(good):
    """Ten traces that are wrong, each in its own way, by names."""

    def change(f):
        trace = Trace.FromString(good)
        f(trace)
        return trace.SerializeToString()

    def twice(t):
        t.packet.add().CopyFrom(next(p for p in t.packet if p.HasField("track_descriptor")))

    def crossed(t):
        last = events(t)[-1]
        last.timestamp = 1

    def flow_twice(t):
        p = with_flow(t, "flow_ids")
        p.track_event.flow_ids.append(p.track_event.flow_ids[0])

    def backwards(t):
        p = with_flow(t, "flow_ids")
        flow = p.track_event.flow_ids[0]
        del p.track_event.flow_ids[:]
        events(t)[-1].track_event.flow_ids.append(flow)

    def no_begin(t):
        drop(t, next(p for p in events(t, TrackEvent.TYPE_SLICE_BEGIN) if not p.track_event.flow_ids and not p.track_event.terminating_flow_ids))

    def no_state(t):
        t.packet[0].ClearField("sequence_flags")

    def no_flow_end(t):
        del with_flow(t, "terminating_flow_ids").track_event.terminating_flow_ids[:]

    def stray(t):
        events(t)[-1].track_event.track_uuid = 4242

    def nameless(t):
        events(t, TrackEvent.TYPE_SLICE_BEGIN)[0].track_event.ClearField("name")

    return {
        "cut in the middle": good[: len(good) * 2 // 3 + 1],
        "a track described twice": change(twice),
        "time that runs back": change(crossed),
        "a flow that begins twice": change(flow_twice),
        "a flow that runs back": change(backwards),
        "an end without a beginning": change(no_begin),
        "a beginning without an end": change(lambda t: drop(t, events(t, TrackEvent.TYPE_SLICE_END)[-1])),
        "a flow without an end": change(no_flow_end),
        "an event on no track": change(stray),
        "a slice without a name": change(nameless),
        "no beginning of the state": change(no_state),
        "a field of no definition": good + b"\x0a\x04\xf8\xff\x07\x01",
    }


def main(args):
    failed = False
    if args[0] == "--self-test":
        with open(args[1], "rb") as f:
            good = f.read()
        if check(good):
            print("%s: expected a trace in order: %s" % (args[1], check(good)[:3]))
            return 1
        found = 0
        for name, data in broken(good).items():
            if not check(data):
                print("%s: the checker does not find it" % name)
                failed = True
            else:
                found += 1
        print("%d broken traces were found" % found)
        return int(failed)
    for name in args:
        with open(name, "rb") as f:
            for text in check(f.read())[:10]:
                print("%s: %s" % (name, text))
                failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
