package comm_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Port channels use the connections to a peer in turn: as many as both sides want.
func TestPortChannelsUseLinksInTurn(t *testing.T) {
	const channels, bytes = 5, 4096
	for _, c := range []struct {
		wants [2]int
		links int
	}{{[2]int{0, 0}, 1}, {[2]int{3, 3}, 3}, {[2]int{2, 4}, 2}, {[2]int{8, 1}, 1}, {[2]int{8, 8}, channels}} {
		t.Run(fmt.Sprint(c.wants), func(t *testing.T) {
			g := newRig(2)
			g.adjust = func(rank int, tr *comm.Transport) { tr.Description.Links = c.wants[rank] }
			g.run(t, func(ctx context.Context, cm *comm.Communicator) error {
				m, err := cm.Alloc(2 * channels * bytes)
				if err != nil {
					return err
				}
				defer m.Close()
				var all [channels]*comm.PortChannel
				for i := range all {
					if all[i], err = cm.PortChannel(ctx, 1-cm.Rank(), m, m); err != nil {
						return err
					}
					defer all[i].Close()
				}
				if got := g.ids[cm.Rank()].count(framework.KindPort.String() + " endpoint"); got != c.links {
					return fmt.Errorf("%d connections for %d channels: expected %d", got, channels, c.links)
				}
				if got := cm.Links(); len(got) != 1 {
					return fmt.Errorf("%d links are listed: expected one for each kind and peer", len(got))
				}
				data := device.Bytes(m.Memory)
				for i, ch := range all {
					for k := range bytes {
						data[i*bytes+k] = byte(16*cm.Rank() + i + 1)
					}
					if err := ch.PutWithSignal(uint64(channels+i)*bytes, uint64(i)*bytes, bytes); err != nil {
						return err
					}
				}
				for i, ch := range all {
					if err := ch.Wait(ctx); err != nil {
						return err
					}
					want := byte(16*(1-cm.Rank()) + i + 1)
					for k := range bytes {
						if got := data[(channels+i)*bytes+k]; got != want {
							return fmt.Errorf("channel %d: byte %d is %d, expected %d", i, k, got, want)
						}
					}
				}
				return cm.Barrier(ctx)
			})
		})
	}
}
