package observe

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// The conversations of clocks. Values below 1<<32 are those of other users of a bootstrap.
const (
	tagAsk    framework.Tag = 0x636c6f636b<<16 | 1
	tagAnswer framework.Tag = 0x636c6f636b<<16 | 2
)

// burst is how many questions are asked at a time.
const burst = 8

// Align keeps the clock of this rank in step with that of rank 0, until ctx ends or the bootstrap does. hosts are the first
// ranks of all hosts, the same list on all ranks; the ranks of a host share its clock, so only these ask.
// It returns at once.
func (r *Rank) Align(ctx context.Context, boot framework.Bootstrap, hosts []int) {
	if r == nil || len(hosts) < 2 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	r.group.Go(func() {
		<-r.stop
		cancel()
	})
	for _, host := range hosts {
		switch self := boot.Rank(); {
		case host == 0:
		case self == 0:
			r.group.Go(func() { r.answer(ctx, boot, host) })
		case self == host:
			r.group.Go(func() { r.ask(ctx, boot) })
		}
	}
}

// answer tells one host the time.
func (r *Rank) answer(ctx context.Context, boot framework.Bootstrap, host int) {
	for {
		p, err := boot.Recv(ctx, host, tagAsk)
		if err != nil {
			return // the host has left, or the job is over
		}
		now := r.clock()
		p.Close()
		if boot.Send(ctx, host, tagAnswer, framework.Parcel{Data: binary.LittleEndian.AppendUint64(nil, uint64(now))}) != nil {
			return
		}
	}
}

// The time between two bursts: at first the drift is not known, and while records are off a rough time is enough.
const (
	pauseAtFirst = 250 * time.Millisecond
	pauseOn      = time.Second
	pauseOff     = 10 * time.Second
)

func (r *Rank) ask(ctx context.Context, boot framework.Bootstrap) {
	var a aligner
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := 0; ; n++ {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		var pings []ping
		for range burst {
			p, err := r.pingOnce(ctx, boot)
			if err != nil {
				return
			}
			pings = append(pings, p)
		}
		a.add(pings)
		r.at.setClock(a.fit())
		switch {
		case n < 4:
			timer.Reset(pauseAtFirst)
		case r.life.On():
			timer.Reset(pauseOn)
		default:
			timer.Reset(pauseOff)
		}
	}
}

func (r *Rank) pingOnce(ctx context.Context, boot framework.Bootstrap) (p ping, err error) {
	p.sent = r.clock()
	if err := boot.Send(ctx, 0, tagAsk, framework.Parcel{Data: []byte{1}}); err != nil {
		return p, err
	}
	answer, err := boot.Recv(ctx, 0, tagAnswer)
	p.received = r.clock()
	if err != nil {
		return p, err
	}
	defer answer.Close()
	if len(answer.Data) != 8 {
		return p, &framework.Error{Op: "clock", Peer: 0, Err: framework.ErrPeer}
	}
	p.answered = int64(binary.LittleEndian.Uint64(answer.Data))
	return p, nil
}
