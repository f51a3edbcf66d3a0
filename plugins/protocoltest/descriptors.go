package protocoltest

import (
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	pb "github.com/mscclpp-go/mscclpp/plugins/proto"
)

func (s *suite) descriptorTests() []transporttest.Test {
	return []transporttest.Test{
		{Name: "descriptors/late", Rule: "A call waits until the descriptors that it cites have arrived.", Body: s.late},
		{Name: "descriptors/closed", Rule: "When a call ends, in whatever way, the descriptors that arrived for it are closed.", Body: s.closed},
		{Name: "descriptors/end-of-call", Rule: "A packet of kind 2 closes what is held for its call.", Body: s.endOfCall},
		{Name: "descriptors/many", Rule: "One packet has 1 to 64 descriptors, and a call any number.", Body: s.many},
		{Name: "descriptors/lost", Rule: "Where fewer descriptors arrive than the packet lists, the call is unavailable and the plugin goes on.", Body: s.lost},
		{Name: "descriptors/answers", Rule: "Descriptors of an answer come under the request's call; each number is used once.", Body: s.answers},
		{Name: "descriptors/malformed", Rule: "A packet that is malformed in any way ends the socket, and with it the plugin.", Body: s.malformed},
		{Name: "descriptors/stranger", Rule: "A packet of another user ends the socket, and with it the plugin.", Body: s.stranger},
	}
}

// refusals are what Register may answer to memory that the transport does not serve.
func refusal(err error) bool {
	return slices.Contains([]codes.Code{codes.InvalidArgument, codes.Unimplemented, codes.FailedPrecondition}, status.Code(err))
}

func (s *suite) late(t transporttest.TB) {
	h, _ := s.configured(t)
	call, number := h.next(), h.numbers(1)[0]
	answered := make(chan error, 1)
	go func() {
		ctx, cancel := h.bounded()
		defer cancel()
		_, err := h.client.Register(ctx, h.register(call, number))
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Errorf("the call was answered before its descriptor arrived: %v", err)
		return
	case <-time.After(settle):
	}
	h.sends(descriptorsPacket(call, number), h.memory())
	if err := <-answered; err != nil && !refusal(err) {
		t.Errorf("a call whose descriptor came after it: %v%s", err, h.said())
	}
}

// registers makes a call with descriptors and closes what came of it.
func (h *host) registers(call uint64, request *pb.RegisterRequest) error {
	ctx, cancel := h.bounded()
	defer cancel()
	answer, err := h.client.Register(ctx, request)
	for _, a := range h.receive() {
		_, _ = a.check(call)
	}
	if err == nil {
		if _, err := h.client.Close(ctx, &pb.CloseRequest{Id: answer.GetId()}); err != nil {
			h.t.Errorf("close a registration: %v", err)
		}
	}
	return err
}

// closed has calls that cite one descriptor of two, succeed, and fail.
func (s *suite) closed(t transporttest.TB) {
	h, _ := s.configured(t)
	fd := h.memory()
	for what, spoil := range map[string]func(r *pb.RegisterRequest){
		"a call that cites one descriptor of two": func(*pb.RegisterRequest) {},
		"a call that fails":                       func(r *pb.RegisterRequest) { r.Segment.Bytes = 0 },
	} {
		once := func() {
			call, numbers := h.next(), h.numbers(2)
			h.sends(descriptorsPacket(call, numbers...), fd, fd)
			request := h.register(call, numbers[0])
			spoil(request)
			_ = h.registers(call, request)
		}
		once() // the first may open what stays
		before := h.descriptors()
		for range 5 {
			once()
		}
		h.back(what, before)
	}
}

func (s *suite) endOfCall(t transporttest.TB) {
	h, _ := s.configured(t)
	fd := h.memory()
	_ = h.registers(0, h.register(h.next())) // the first call may open what stays
	before := h.descriptors()
	for range 5 {
		call := h.next()
		h.sends(descriptorsPacket(call, h.numbers(3)...), fd, fd, fd)
		h.sends(endPacket(call))
	}
	h.sends(endPacket(h.next())) // of a call that it does not know
	// Packets are received in order: behind this call those above have been.
	call, numbers := h.next(), h.numbers(1)
	h.sends(descriptorsPacket(call, numbers...), fd)
	if err := h.registers(call, h.register(call, numbers...)); err != nil && !refusal(err) {
		t.Errorf("a call behind the ends of others: %v%s", err, h.said())
	}
	h.back("calls that failed before they reached the plugin", before)
}

func (s *suite) many(t transporttest.TB) {
	h, _ := s.configured(t)
	fd := h.memory()
	call, numbers := h.next(), h.numbers(1)
	h.sends(descriptorsPacket(call, numbers...), fd)
	one := h.registers(call, h.register(call, numbers...))
	before := h.descriptors()
	call, numbers = h.next(), h.numbers(mostDescriptors+6)
	fds := make([]int, len(numbers))
	for i := range fds {
		fds[i] = fd
	}
	h.sends(descriptorsPacket(call, numbers[:mostDescriptors]...), fds[:mostDescriptors]...)
	h.sends(descriptorsPacket(call, numbers[mostDescriptors:]...), fds[mostDescriptors:]...)
	if err := h.registers(call, h.register(call, numbers...)); status.Code(err) != status.Code(one) {
		t.Errorf("a call with %d descriptors: %v, and with one: %v%s", len(numbers), err, one, h.said())
	}
	h.back("a call with many descriptors", before)
}

func (s *suite) lost(t transporttest.TB) {
	h, _ := s.configured(t)
	call, numbers := h.next(), h.numbers(2)
	h.sends(descriptorsPacket(call, numbers...), h.memory())
	start := time.Now()
	err := h.registers(call, h.register(call, numbers...))
	wants(t, "a call of whose two descriptors one arrived", err, codes.FailedPrecondition)
	if took := time.Since(start); took > h.limit/2 {
		t.Errorf("a call of whose two descriptors one arrived was answered after %v: want at once, for the other never comes", took.Round(time.Millisecond))
	}
	ctx, cancel := h.bounded()
	defer cancel()
	if _, err := h.client.Describe(ctx, &pb.DescribeRequest{}); err != nil {
		t.Errorf("describe behind a call whose descriptors were lost: %v%s", err, h.said())
	}
}

// answers looks at every packet that the plugin sends with its keys.
func (s *suite) answers(t transporttest.TB) {
	h, _ := s.configured(t)
	fd := h.memory()
	used := map[uint64]bool{0: true}
	for range 3 {
		call, numbers := h.next(), h.numbers(1)
		h.sends(descriptorsPacket(call, numbers...), fd)
		ctx, cancel := h.bounded()
		answer, err := h.client.Register(ctx, h.register(call, numbers...))
		cancel()
		if err != nil {
			if !refusal(err) {
				t.Errorf("register: %v%s", err, h.said())
			}
			return // it does not serve such memory
		}
		var came []uint64
		for _, a := range h.receive() {
			list, err := a.check(call)
			if err != nil {
				t.Errorf("a packet of the plugin %v", err)
			}
			came = append(came, list...)
		}
		for _, n := range came {
			if used[n] {
				t.Errorf("descriptor number %d is 0, or was used before", n)
			}
			used[n] = true
		}
		for i, share := range answer.GetKey().GetShares() {
			if n := share.GetFd(); n != 0 && !slices.Contains(came, n) {
				t.Errorf("share %d of the key cites descriptor %d, which has not come with the answer", i, n)
			}
		}
	}
}

// spoiled are packets that no host sends. Two descriptors come with each.
func spoiled() map[string]packet {
	with := func(change func(p *packet)) packet {
		p := descriptorsPacket(1, 1, 2)
		change(&p)
		return p
	}
	many := make([]uint64, mostDescriptors+1)
	for i := range many {
		many[i] = uint64(i) + 1
	}
	return map[string]packet{
		"another magic":           with(func(p *packet) { p.magic = "MSFE" }),
		"version 2":               with(func(p *packet) { p.version = 2 }),
		"kind 0":                  with(func(p *packet) { p.kind = 0 }),
		"kind 3":                  with(func(p *packet) { p.kind = 3 }),
		"no descriptors":          with(func(p *packet) { p.count, p.numbers = 0, nil }),
		"65 descriptors":          with(func(p *packet) { p.count, p.numbers = mostDescriptors+1, many }),
		"15 bytes":                {magic: "MSFD", version: 1, kind: kindEnd, cut: 1},
		"a number too few":        with(func(p *packet) { p.cut = 8 }),
		"a byte too many":         with(func(p *packet) { p.more = []byte{0} }),
		"an end with descriptors": with(func(p *packet) { p.kind = kindEnd }),
		"number 0":                with(func(p *packet) { p.numbers[1] = 0 }),
		"a number twice":          with(func(p *packet) { p.numbers[1] = 1 }),
	}
}

func (s *suite) malformed(t transporttest.TB) {
	all := spoiled()
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	goesOn := make([]string, len(names))
	each(t, len(names), func(t transporttest.TB, i int) {
		h := s.connected(t)
		h.configure(t, s.launcher)
		fd := h.memory()
		h.sends(all[names[i]], fd, fd)
		if _, ended := h.ends(h.limit); !ended {
			goesOn[i] = names[i]
		}
	})
	if list := slices.DeleteFunc(goesOn, func(name string) bool { return name == "" }); len(list) > 0 {
		t.Errorf("the plugin goes on behind a packet with: %s", strings.Join(list, "; "))
	}
}

// stranger sends a good packet in the name of another user, which root alone can.
func (s *suite) stranger(t transporttest.TB) {
	if os.Getuid() != 0 {
		return
	}
	h, _ := s.configured(t)
	cred := &unix.Ucred{Pid: int32(os.Getpid()), Uid: 12345, Gid: uint32(os.Getgid())}
	if err := h.send(descriptorsPacket(h.next(), h.numbers(1)...), []int{h.memory()}, cred); err != nil {
		return // in a container that may not
	}
	if _, ended := h.ends(h.limit); !ended {
		t.Errorf("a packet of user %d: the plugin of user %d goes on", cred.Uid, os.Getuid())
	}
}
