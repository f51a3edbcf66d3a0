package exec_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// expect compares the buffers of a rank with what the index says.
func expect(p *schema.Plan, rank, chunk int, x entry, in [][]byte, own, out []byte) error {
	n := len(in)
	part := func(b []byte, i int) []byte { return b[i*chunk : (i+1)*chunk] }
	peer := in[(rank+1)%n]
	same := func(what string, got, want []byte) error {
		if !bytes.Equal(got, want) {
			i := 0
			for got[i] == want[i] {
				i++
			}
			return fmt.Errorf("%s differs at byte %d of %d", what, i, len(want))
		}
		return nil
	}
	switch code, _, _ := strings.Cut(x.result, " "); code {
	case "AR", "AR-o":
		return same("the sum", out, sum(in...))
	case "AG", "AG-oop", "AG-alias":
		return same("the output", out, bytes.Join(in, nil))
	case "RS":
		return same("the sum", out, sum(in...)[rank*len(out):][:len(out)])
	case "A2A", "A2A-oop":
		var want []byte
		size := len(out) / n
		for _, b := range in {
			want = append(want, b[rank*size:][:size]...)
		}
		return same("the output", out, want)
	case "SR":
		g := 1
		if _, err := fmt.Sscanf(x.result, "SR (group %d)", &g); err != nil {
			return err
		}
		return same("the message", out, in[(rank-g+n)%n])
	}
	switch strings.Split(filepath.Base(x.file), "-")[0] {
	case "copy_test", "unpack_packet_test", "pipeline_test":
		return same("the copy", out, in[rank])
	case "get_test":
		return same("the input", own, append(bytes.Clone(part(peer, 1)), part(in[rank], 1)...))
	case "put_with_signal_test":
		return same("the input", own, append(bytes.Clone(part(in[rank], 0)), part(peer, 0)...))
	case "read_reduce_fuse_test":
		return same("the sum", part(out, 0), sum(part(in[rank], 0), part(peer, 0), part(peer, 1)))
	case "reduce_send_test":
		return same("the sums", out, append(sum(part(in[rank], 0), part(in[rank], 1)), sum(part(peer, 0), part(peer, 1))...))
	case "tbg_reduce_fuse_test":
		return same("the output", out, append(sum(part(in[rank], 0), part(in[rank], 1), part(in[rank], 2)), make([]byte, chunk)...))
	case "barrier_test", "flush_test", "semaphore", "put_packet_test":
		return nil // they end
	}
	return fmt.Errorf("no expectation for %q", x.result)
}
