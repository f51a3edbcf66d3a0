package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/plan/exec"
)

// ended is the outcome of a plan that is for no collective.
type ended struct {
	File     string  `json:"file"`
	Plan     string  `json:"plan"`
	Ranks    int     `json:"ranks"`
	Launches int     `json:"launches"`
	TimeUS   float64 `json:"time_us"`
}

// alone runs a plan that is for no collective.
func (f *planFlags) alone(ctx context.Context, env *verb.Env, g *group, file *planFile) error {
	e, err := exec.New(ctx, g.job.World, file.plan)
	if err != nil {
		return err
	}
	defer e.Close()
	x := &file.plan.GPUs[g.Rank()]
	chunk := int64(64 * file.plan.Alignment)
	in, err := g.Alloc(max(1, int64(x.InputChunks)*chunk), true)
	if err != nil {
		return err
	}
	out, err := g.Alloc(max(1, int64(x.OutputChunks)*chunk), true)
	if err != nil {
		return err
	}
	const launches = 4
	began := time.Now()
	for range launches {
		call := &exec.Call{Input: in.Addr, InputBytes: uint64(int64(x.InputChunks) * chunk), Output: out.Addr,
			OutputBytes: uint64(int64(x.OutputChunks) * chunk), Packet: exec.Packet(f.packets), Stream: g.opts.Stream}
		if err := e.Execute(call); err != nil {
			return err
		}
	}
	if q := g.Queue(); q != nil {
		if err := q.Finish(); err != nil {
			return err
		}
	}
	if g.Rank() != 0 {
		return nil
	}
	got := ended{file.name, file.plan.Name, g.Size(), launches, float64(time.Since(began).Microseconds()) / launches}
	if f.format == "json" {
		return json.NewEncoder(env.Stdout).Encode(got)
	}
	_, err = fmt.Fprintf(env.Stdout, "%s: plan %s ended %d times on %d ranks, in %.1f µs each\n", got.File, got.Plan, got.Launches, got.Ranks, got.TimeUS)
	return err
}
