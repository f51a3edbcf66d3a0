package choose

import (
	"encoding/json"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Surroundings is what a rank on a GPU tells the others before they choose algorithms
// and shapes together.
type Surroundings struct {
	Device  string // the same for ranks on one GPU; "": not known
	Sharing int    // as Options say
	NoLines bool

	Name         string `json:",omitempty"` // of the GPU
	Address      string `json:",omitempty"` // on the bus
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
