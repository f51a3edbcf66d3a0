package collectives

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

// surroundings is what a rank on a GPU tells the others before they choose algorithms
// and shapes together.
type surroundings struct {
	Device  string // the same for ranks on one GPU; "": not known
	Sharing int    // as Options say
	NoLines bool

	Name         string `json:",omitempty"` // of the GPU
	Address      string `json:",omitempty"` // on the bus
	Major, Minor int    // its compute capability; 0: not known
	Links        Links
}

// unique is a device that knows what tells it from all others, and placed one that knows
// where it is and what it can do: those of package cuda.
type (
	unique interface{ UUID() [16]byte }
	placed interface {
		PCI() string
		Capability() (major, minor int)
	}
)

// lookAround finds out whether ranks share a GPU, and whether one of them must not get
// lines, and how their GPUs are joined. The options are the same on all ranks afterwards.
// Collective, on GPUs.
func (c *Comm) lookAround(ctx context.Context) error {
	mine := surroundings{Sharing: c.opts.Sharing, NoLines: c.opts.NoLines, Name: c.comm.Device().Info().Name, Links: c.opts.Links}
	if d, ok := c.comm.Device().(placed); ok {
		mine.Address = d.PCI()
		mine.Major, mine.Minor = d.Capability()
	}
	if d, ok := c.comm.Device().(unique); ok {
		if id := d.UUID(); id != [16]byte{} {
			mine.Device = hex.EncodeToString(id[:])
		}
	}
	text, err := json.Marshal(mine)
	if err != nil {
		return fmt.Errorf("collectives: %w", err)
	}
	all, err := c.comm.AllGather(ctx, text)
	if err != nil {
		return fmt.Errorf("collectives: %w", err)
	}
	list, err := heard(all)
	if err != nil {
		return err
	}
	c.opts.Sharing, c.opts.NoLines = inCommon(list)
	c.route = joined(list, c.opts.NoLines)
	return nil
}

// heard is what ranks have said, by rank.
func heard(all [][]byte) ([]surroundings, error) {
	list := make([]surroundings, len(all))
	for r, b := range all {
		if err := json.Unmarshal(b, &list[r]); err != nil {
			return nil, fmt.Errorf("collectives: %w", &framework.Error{Op: "look around", Peer: r,
				Err: fmt.Errorf("%w: %q: expected what a rank says of its device: %v", framework.ErrPeer, b, err)})
		}
	}
	return list, nil
}

// inCommon is what holds for all ranks: the most ranks that share one GPU, and whether
// lines may be torn somewhere.
func inCommon(list []surroundings) (sharing int, noLines bool) {
	sharing = 1
	on := map[string]int{}
	for _, s := range list {
		if s.Device != "" {
			on[s.Device]++
		}
		sharing = max(sharing, s.Sharing, on[s.Device])
		noLines = noLines || s.NoLines
	}
	return sharing, noLines
}
