package negotiate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// offer is what one side can do towards a peer over one transport.
type offer struct {
	Name  string   `json:"name"`
	Reach []string `json:"reach"`
	Data  []byte   `json:"data"`
	// Kinds of the address's shares; their blobs and descriptors are the next
	// ones of the message that carries the offers.
	Shares  int    `json:"shares"`
	Streams bool   `json:"streams,omitempty"` // port: the rank would drive the sockets itself
	Links   int    `json:"links,omitempty"`   // port: connections that channels would use in turn
	Why     string `json:"why,omitempty"`     // not offered, and the reason
	Never   bool   `json:"never,omitempty"`   // nor at any other time
}

func offered(offers []offer, name string) offer {
	return offers[slices.IndexFunc(offers, func(o offer) bool { return o.Name == name })]
}

// packOffers puts all offers into one parcel: JSON, and the shares in order.
func packOffers(offers []offer, ends map[string]framework.Endpoint) (framework.Parcel, error) {
	data, err := json.Marshal(offers)
	if err != nil {
		return framework.Parcel{}, err
	}
	p := framework.Parcel{Data: data}
	for _, o := range offers {
		p.Shares = append(p.Shares, ends[o.Name].Address.Shares...)
	}
	return p, nil
}

func unpackOffers(p framework.Parcel) ([]offer, map[string]framework.Parcel, error) {
	var offers []offer
	if err := json.Unmarshal(p.Data, &offers); err != nil {
		return nil, nil, fmt.Errorf("%w: offers: %v", framework.ErrPeer, err)
	}
	shares := p.Shares
	addresses := make(map[string]framework.Parcel)
	for _, o := range offers {
		if o.Shares < 0 || o.Shares > len(shares) {
			return nil, nil, fmt.Errorf("%w: offer of %s has %d shares, %d arrived", framework.ErrPeer, o.Name, o.Shares, len(shares))
		}
		addresses[o.Name] = framework.Parcel{Data: o.Data, Shares: shares[:o.Shares]}
		shares = shares[o.Shares:]
	}
	return offers, addresses, nil
}

// choose returns the first transport, in the lower rank's order, whose endpoints
// on both sides share a reach token. Both sides compute it alike.
func choose(lower, higher []offer) (string, error) {
	for _, a := range lower {
		for _, b := range higher {
			if a.Name == b.Name && a.Why == "" && b.Why == "" && slices.ContainsFunc(a.Reach, func(token string) bool {
				return slices.Contains(b.Reach, token)
			}) {
				return a.Name, nil
			}
		}
	}
	class, advice := framework.ErrUnavailable, ""
	if slices.ContainsFunc(lower, func(a offer) bool {
		return a.Why == "" && slices.ContainsFunc(higher, func(b offer) bool { return a.Name == b.Name && b.Why == "" })
	}) { // both have it, and it does not lead from one to the other
		advice = ": expected one that reaches both, such as tcp, in transports on all ranks"
	}
	if hopeless(lower) || hopeless(higher) {
		class = framework.ErrUnsupported
	}
	return "", fmt.Errorf("%w: no common transport: %s%s", class, describeBoth(lower, higher), advice)
}

// describeBoth says what both sides offer, and once what they lack for the same reason.
func describeBoth(lower, higher []offer) string {
	var both []string
	rest := func(own, other []offer, note bool) string {
		kept := slices.DeleteFunc(slices.Clone(own), func(o offer) bool {
			same := o.Why != "" && slices.ContainsFunc(other, func(p offer) bool { return p.Name == o.Name && p.Why == o.Why })
			if same && note {
				both = append(both, fmt.Sprintf("%s (%s)", o.Name, o.Why))
			}
			return same
		})
		if len(kept) == 0 && len(own) > 0 {
			return "no other"
		}
		return describe(kept)
	}
	low, high := rest(lower, higher, true), rest(higher, lower, false)
	var words []string
	if len(both) > 0 {
		words = append(words, "both ranks lack "+strings.Join(both, ", "))
	}
	if low != "no other" || high != "no other" {
		words = append(words, "lower rank offers "+low, "higher rank offers "+high)
	}
	return strings.Join(words, "; ")
}

// hopeless reports whether a rank has transports of the kind, and none of them can
// ever make the link.
func hopeless(offers []offer) bool {
	return len(offers) > 0 && !slices.ContainsFunc(offers, func(o offer) bool { return !o.Never })
}

func describe(offers []offer) string {
	if len(offers) == 0 {
		return "none of this kind"
	}
	words := make([]string, len(offers))
	for i, o := range offers {
		if words[i] = fmt.Sprintf("%s %v", o.Name, o.Reach); o.Why != "" {
			words[i] = fmt.Sprintf("%s (%s)", o.Name, o.Why)
		}
	}
	return strings.Join(words, ", ")
}
