package choose

import (
	"encoding/json"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Links is what a rank on a GPU knows about the connections from its GPU to others.
// Each rank passes its own; the zero value means that nothing is known. Where the
// tables have no measured rows, a model chooses algorithms from the Links of all ranks.
type Links struct {
	Host       string   `json:",omitempty"` // the host whose bus it is, the same text on all of its ranks
	Known      bool     // whether GPUs that are not in NVLinks are reached over PCIe
	NVLinks    []NVLink `json:",omitempty"`
	PCIe       float64  `json:",omitempty"` // GB/s each way in theory; 0: not known
	HostMemory bool     `json:",omitempty"` // whether GPUs communicate through host memory
}

// NVLink is a bundle of links to another GPU: NVLinks, or those of another maker.
type NVLink struct {
	Peer    string // its address on the bus: "0000:19:00.0"; of a device that is on none, its UUID
	Count   int
	Version int     `json:",omitempty"` // 4 on H100 and H200; 0: not known
	Switch  bool    `json:",omitempty"` // whether they lead to a switch, and so to all peers at once
	Kind    string  `json:",omitempty"` // the maker's word for them; "": NVLink, or xGMI of AMD's
	Rate    float64 `json:",omitempty"` // GB/s that all of them carry, each way; 0: follows from version and count
	Latency float64 `json:",omitempty"` // µs from a store until a peer that polls has seen it; 0: not known
}

// Surroundings is what a rank on a GPU tells the others before they choose algorithms
// and shapes together.
type Surroundings struct {
	Device  string // the same for ranks on one GPU; "": not known
	Sharing int    // as Options say
	NoLines bool

	Name         string `json:",omitempty"` // of the GPU
	Address      string `json:",omitempty"` // on the bus; of a device that is on none, its UUID
	Major, Minor int    // its compute capability; 0: not known
	Links        Links
}

// Heard is what ranks have said, by rank.
func Heard(all [][]byte) ([]Surroundings, error) {
	list := make([]Surroundings, len(all))
	for r, b := range all {
		if err := json.Unmarshal(b, &list[r]); err != nil {
			return nil, fmt.Errorf("collectives: %w", &framework.Error{Op: "look around", Peer: r,
				Err: fmt.Errorf("%w: %q: expected what a rank says of its device: %v", framework.ErrPeer, b, err)})
		}
	}
	return list, nil
}

// InCommon is what holds for all ranks: the most ranks that share one GPU, and whether
// lines may be torn somewhere.
func InCommon(list []Surroundings) (sharing int, noLines bool) {
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
