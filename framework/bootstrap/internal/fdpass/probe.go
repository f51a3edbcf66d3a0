package fdpass

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
)

// probeTimeout bounds the handshake that shows that descriptors can travel. A process that is gone refuses at once;
// one on a busy host may take seconds.
const probeTimeout = 10 * time.Second

// Probe sends a descriptor and waits for one in return, or for the failure of the job.
func (d *Socket) Probe(ctx, life context.Context, job *failure.State, to [16]byte, rank int) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	m := datagram{kind: datagramProbe, count: 1, from: uint32(d.rank), to: uint32(rank)}
	copy(m.text[:16], d.Name[:]) // where to reply
	_, _ = rand.Read(m.text[16:])
	f, err := memory(m.text)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := d.post(ctx, life, to, m, []*os.File{f}); err != nil {
		return err
	}
	for {
		select {
		case r := <-d.replies:
			if r.from == uint32(rank) && r.text == m.text {
				return nil
			}
		case <-job.Done():
			return job.Cause()
		case <-ctx.Done():
			return fmt.Errorf("%w: no descriptor came back: %w", framework.ErrUnavailable, context.Cause(ctx))
		}
	}
}

// reply answers a probe: with the descriptor that came, which shows that it works
// in both directions. It runs in the reader, so it does not wait.
func (d *Socket) reply(m datagram, files []*os.File) {
	defer closeFiles(files)
	if !holds(files, m.text) {
		return
	}
	r := datagram{kind: datagramReply, count: 1, from: uint32(d.rank), to: m.from, text: m.text}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := d.post(ctx, ctx, [16]byte(m.text[:16]), r, files); err != nil {
		d.log.Debug("bootstrap: a probe was not answered", "peer", m.from, "error", err)
	}
}
