package verbs

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
)

// pair is a queue pair with its queues of completions, and memory for requests on their
// way into the library. Its methods are not for concurrent use, but receiving and sending
// are independent.
type pair struct {
	dev        *adapter
	send, recv *C.struct_rv_cq
	qp         *C.struct_rv_qp
	number     uint32
	inline     uint32
	access     int
	receives   int

	memory   unsafe.Pointer
	taken    *C.int
	ready    *C.mscclpp_verbs_ready_made // an atomic at readyFor, which asks for a completion
	readyFor target
	ops      []C.mscclpp_verbs_op // memory of C: Go's must not move while the library reads
	sent     []C.struct_rv_wc
	came     []C.struct_rv_wc
}

const batch = C.mscclpp_verbs_batch

// pairConfig says how large a pair is.
type pairConfig struct {
	sends, receives int
	inline          int
	access          int
}

func (d *adapter) newPair(c pairConfig) (*pair, error) {
	p := &pair{dev: d, access: c.access, receives: c.receives}
	var e C.int
	fail := func(what string, requests int) (*pair, error) {
		p.close()
		e := syscall.Errno(e)
		return nil, fmt.Errorf("%w: device %s: %s for %d requests: %w%s", framework.ErrUnavailable, d.name, what, requests, e, queueAdvice(e))
	}
	if p.send = C.mscclpp_verbs_queue(d.lib.c, d.c.context, C.int(c.sends+1), nil, &e); p.send == nil {
		return fail("queue of completions", c.sends)
	}
	if c.receives > 0 {
		if p.recv = C.mscclpp_verbs_queue(d.lib.c, d.c.context, C.int(c.receives+1), d.c.channel, &e); p.recv == nil {
			return fail("queue of receptions", c.receives)
		}
	}
	recv := p.recv
	if recv == nil {
		recv = p.send
	}
	inline := C.uint32_t(c.inline)
	if p.qp = C.mscclpp_verbs_pair(d.lib.c, d.c.pd, p.send, recv, C.uint32_t(c.sends), C.uint32_t(c.receives), &inline, &e); p.qp == nil {
		return fail("queue pair", c.sends)
	}
	p.number, p.inline = uint32(p.qp.qp_num), min(uint32(inline), uint32(c.inline))

	const ops, done, raise = batch * C.sizeof_mscclpp_verbs_op, batch * C.sizeof_struct_rv_wc, C.sizeof_mscclpp_verbs_ready_made
	p.memory = C.calloc(1, ops+2*done+raise+C.sizeof_int)
	p.ops = unsafe.Slice((*C.mscclpp_verbs_op)(p.memory), batch)
	p.sent = unsafe.Slice((*C.struct_rv_wc)(unsafe.Add(p.memory, ops)), batch)
	p.came = unsafe.Slice((*C.struct_rv_wc)(unsafe.Add(p.memory, ops+done)), batch)
	p.ready = (*C.mscclpp_verbs_ready_made)(unsafe.Add(p.memory, ops+2*done))
	p.ready.qp, p.ready.cq, p.ready.out = p.qp, p.send, &p.sent[0]
	p.taken = (*C.int)(unsafe.Add(p.memory, ops+2*done+raise))
	return p, nil
}

func (p *pair) close() {
	if p.qp != nil {
		C.mscclpp_verbs_free_pair(p.dev.lib.c, p.qp)
	}
	if p.recv != nil {
		C.mscclpp_verbs_free_queue(p.dev.lib.c, p.recv)
	}
	if p.send != nil {
		C.mscclpp_verbs_free_queue(p.dev.lib.c, p.send)
	}
	C.free(p.memory)
	*p = pair{dev: p.dev}
}

// path is how a pair reaches its peer's.
type path struct {
	qpn, psn, ownPSN    uint32
	mtu                 int
	global              bool
	gid                 [16]byte
	lid                 uint16
	level, class        uint8
	timeout, retries    uint8
	initiated, accepted uint8
}

// reset takes the pair out of a link; what was under way is dropped.
func (p *pair) reset() error {
	p.readyFor = target{}
	if e := C.mscclpp_verbs_reset(p.dev.lib.c, p.qp); e != 0 {
		return fmt.Errorf("%w: device %s: reset of a queue pair: %w", framework.ErrUnavailable, p.dev.name, syscall.Errno(e))
	}
	return nil
}

// connect makes the pair ready to receive and to send.
func (p *pair) connect(to path) error {
	c := C.mscclpp_verbs_path{
		peer_qpn: C.uint32_t(to.qpn), peer_psn: C.uint32_t(to.psn), own_psn: C.uint32_t(to.ownPSN),
		port: C.int(p.dev.port), mtu: C.int(to.mtu), gid_index: C.int(max(p.dev.gidIndex, 0)),
		lid: C.uint16_t(to.lid), level: C.uint8_t(to.level), traffic_class: C.uint8_t(to.class),
		timeout: C.uint8_t(to.timeout), retries: C.uint8_t(to.retries), rnr_retries: C.uint8_t(rnrRetries),
		initiated: C.uint8_t(to.initiated), accepted: C.uint8_t(to.accepted), access: C.int(p.access),
	}
	if to.global {
		c.global = 1
	}
	for i, b := range to.gid {
		c.gid[i] = C.uint8_t(b)
	}
	step := func(what string, e C.int) error {
		if e == 0 {
			return nil
		}
		return fmt.Errorf("%w: device %s port %d: queue pair to %s: %w", framework.ErrUnavailable, p.dev.name, p.dev.port, what, syscall.Errno(e))
	}
	if err := step("INIT", C.mscclpp_verbs_init(p.dev.lib.c, p.qp, &c)); err != nil {
		return err
	}
	if p.receives > 0 { // before a peer can send; in RESET it is refused
		if err := step("receive", C.mscclpp_verbs_post_receives(p.qp, C.int(p.receives))); err != nil {
			return err
		}
	}
	return step("RTR and RTS", C.mscclpp_verbs_ready(p.dev.lib.c, p.qp, &c))
}

// rnrRetries is finite: credits keep the peer's receive queue from running empty, so that
// a refusal is a defect that must show.
const rnrRetries = 6

// request is one work request.
type request struct {
	opcode, flags uint16
	bytes         uint32
	local         uint64
	lkey          uint32
	remote        uint64
	rkey          uint32
	value         uint64 // the addend of an atomic, or the immediate
	role          role
}

// role is the meaning of a request for those before it.
type role uint8

const (
	carries role = 1 // data that nothing behind it vouches for yet
	vouches role = 2 // its completion, or its count, means that earlier data is there
)

// Kinds and flags of requests.
const (
	opWrite    = C.rv_wr_rdma_write
	opWriteImm = C.rv_wr_rdma_write_with_imm
	opRead     = C.rv_wr_rdma_read
	opAdd      = C.rv_wr_fetch_and_add

	flagSignaled = C.rv_send_signaled
	flagInline   = C.rv_send_inline

	accessLocal  = C.rv_access_local_write
	accessWrite  = C.rv_access_remote_write
	accessRead   = C.rv_access_remote_read
	accessAtomic = C.rv_access_remote_atomic
)

// stage puts a request into place i of the batch, numbered id.
func (p *pair) stage(i int, id uint64, r *request) {
	p.ops[i] = C.mscclpp_verbs_op{
		id: C.uint64_t(id), local: C.uint64_t(r.local), remote: C.uint64_t(r.remote), value: C.uint64_t(r.value),
		bytes: C.uint32_t(r.bytes), lkey: C.uint32_t(r.lkey), rkey: C.uint32_t(r.rkey),
		opcode: C.uint16_t(r.opcode), flags: C.uint16_t(r.flags),
	}
}

// post gives the first n staged requests to the adapter by one call; look: that also takes
// completions, so many of which are in sent then.
func (p *pair) post(n int, look bool) (came int, err error) {
	most := C.int(0)
	if look {
		most = batch
	}
	e := C.mscclpp_verbs_post(C.uintptr_t(uintptr(unsafe.Pointer(p.qp))), &p.ops[0], C.int(n), C.uintptr_t(uintptr(unsafe.Pointer(p.send))), &p.sent[0], most, p.taken)
	if e < 0 {
		return 0, p.notTaken(int(*p.taken)+1, n, int(e))
	}
	return int(e), nil
}

// notTaken is the error of a request that the adapter has refused with a code less than 0.
func (p *pair) notTaken(request, of, code int) error {
	return fmt.Errorf("%w: device %s: request %d of %d was not taken: %w", framework.ErrUnavailable, p.dev.name, request, of, syscall.Errno(-code))
}

// completion is the end of a request.
type completion struct {
	id             uint64
	status, vendor uint32
	value          uint32
}

func completionOf(d *C.struct_rv_wc) completion {
	immediate := (*[4]byte)(unsafe.Pointer(&d.imm_data))
	return completion{id: uint64(d.wr_id), status: uint32(d.status), vendor: uint32(d.vendor_err), value: binary.BigEndian.Uint32(immediate[:])}
}

// pollSent leaves completions in sent, and pollCame those of receptions in came.
func (p *pair) pollSent() (int, error) { return p.poll(p.send, p.sent) }
func (p *pair) pollCame() (int, error) { return p.poll(p.recv, p.came) }

func (p *pair) poll(cq *C.struct_rv_cq, into []C.struct_rv_wc) (int, error) {
	n := C.mscclpp_verbs_poll(C.uintptr_t(uintptr(unsafe.Pointer(cq))), &into[0], batch)
	if n < 0 {
		return 0, fmt.Errorf("%w: device %s: its queue of completions cannot be read: %d", framework.ErrUnavailable, p.dev.name, int(n))
	}
	return int(n), nil
}

// repost makes room for n more receptions.
func (p *pair) repost(n int) error {
	if e := C.mscclpp_verbs_post_receives(p.qp, C.int(n)); e != 0 {
		return fmt.Errorf("%w: device %s: reception: %w", framework.ErrUnavailable, p.dev.name, syscall.Errno(e))
	}
	return nil
}

func (p *pair) arm() { C.mscclpp_verbs_arm(p.recv) }

// awaitEvent sleeps until a queue that was armed has something, or for a while.
func (d *adapter) awaitEvent(milliseconds int) {
	C.mscclpp_verbs_event(d.lib.c, d.c.channel, C.int(milliseconds))
}

// target is memory of a peer.
type target struct {
	addr, bytes uint64
	rkey        uint32
	id          framework.ID
}
