package collectives

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/mscclpp-go/mscclpp/collectives/internal/coverage"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// setting is one that all ranks need alike, under the name that the configuration has for
// it, and its value in words.
type setting struct{ Name, Value string }

// settings are all of them: what decides, before ranks have exchanged anything else, which
// calls they make, and how the memory is divided through which data passes. Values that each rank
// may have of its own are not here (Links), nor are those that one rank decides for all (Sharing,
// and on GPUs NoLines).
func settings(c *comm.Communicator, o *Options) ([]setting, error) {
	table := "no rows"
	if n := len(o.Table); n > 0 {
		rows, err := json.Marshal(o.Table)
		if err != nil {
			return nil, fmt.Errorf("collectives: %w", err)
		}
		table = fmt.Sprintf("%d rows with the sum %.4x", n, sha256.Sum256(rows))
	}
	kinds := []string{}
	for _, k := range []framework.Kind{framework.KindMemory, framework.KindPort, framework.KindSwitch} {
		if c.Offers(k) {
			kinds = append(kinds, k.String())
		}
	}
	all := []setting{
		{"device", c.Device().Info().Device.Type},
		{"kinds of channels of the transports", fmt.Sprint(kinds)},
		{"collectives that the transports have kernels for", coverage.Of(c).String()},
		{"comm.scratch", bytesText(o.Scratch)},
		{"comm.max_blocks", fmt.Sprint(o.MaxBlocks)},
		{"collectives.copy_engines", fmt.Sprint(!o.NoCopies)},
		{"collectives.copy_scratch", bytesText(o.CopyScratch)},
		{"collectives.table", table},
		{"check.signatures", string(o.Signatures)},
	}
	if c.Device().Info().Device == framework.Host {
		lines := "auto"
		if o.NoLines {
			lines = "never"
		}
		all = append(all, setting{"collectives.lines", lines})
	}
	return all, nil
}

func bytesText(n uint64) string { return fmt.Sprint(n, " bytes") }

// agreeSettings refuses settings that differ, before anything depends on them. Ranks send
// a sum, and only where sums differ what they are of. Collective.
func agreeSettings(ctx context.Context, c *comm.Communicator, o *Options) error {
	mine, err := settings(c, o)
	if err != nil {
		return err
	}
	text, err := json.Marshal(mine)
	if err != nil {
		return fmt.Errorf("collectives: %w", err)
	}
	sum := sha256.Sum256(text)
	all, err := c.AllGather(ctx, sum[:])
	if err != nil {
		return fmt.Errorf("collectives: %w", err)
	}
	differ := false
	for _, theirs := range all {
		differ = differ || !bytes.Equal(theirs, all[0])
	}
	if !differ {
		return nil
	}
	if all, err = c.AllGather(ctx, text); err != nil {
		return fmt.Errorf("collectives: %w", err)
	}
	return differing(c, all)
}

// differing names the first rank whose settings are not those of rank 0, and all in which
// it differs: the same on all ranks.
func differing(c *comm.Communicator, all [][]byte) error {
	said := make([]map[string]string, len(all))
	var names []string // in the order of rank 0, and then what others have besides
	for r, b := range all {
		var list []setting
		if err := json.Unmarshal(b, &list); err != nil {
			return fmt.Errorf("collectives: %w", &framework.Error{Op: "compare settings", Peer: r,
				Err: fmt.Errorf("%w: %.80q: expected the settings of a rank: %v", framework.ErrPeer, b, err)})
		}
		said[r] = make(map[string]string, len(list))
		for _, s := range list {
			said[r][s.Name] = s.Value
			if _, known := said[0][s.Name]; r == 0 || !known {
				names = append(names, s.Name)
			}
		}
		var words []string
		for _, name := range names {
			if here, there := said[r][name], said[0][name]; here != there {
				words = append(words, fmt.Sprintf("%s is %s, and on rank 0 %s", name, here, there))
			}
		}
		if len(words) > 0 {
			return fmt.Errorf("collectives: %w", &framework.Error{Op: "compare settings", Peer: r, Err: fmt.Errorf(
				"%w: on host %s %s (host %s): expected the same on all ranks", framework.ErrInvalid, c.HostOf(r), strings.Join(words, "; "), c.HostOf(0))})
		}
	}
	return fmt.Errorf("collectives: %w: ranks gave other settings than they gave a sum of", framework.ErrPeer)
}

// deviceScratch is the default of Options.Scratch on a GPU. Two ranks gain nothing from more: the areas for packets and lines are
// divided among the peers, and 128 MiB hold what calls of these kinds need.
func deviceScratch(ranks int) uint64 { return min(DeviceScratch, uint64(ranks)*DeviceScratch/4) }
