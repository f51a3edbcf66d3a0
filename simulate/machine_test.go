package simulate

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestMachinesAreValid(t *testing.T) {
	for _, m := range Machines() {
		if err := m.Validate(); err != nil {
			t.Error(err)
		}
		if found, err := FindMachine(strings.ToUpper(m.Name)); err != nil || found != m {
			t.Errorf("%s: found %+v, %v", m.Name, found, err)
		}
	}
	if _, err := FindMachine("b300"); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "expected one of h100, h200") {
		t.Errorf("%v: want the names that are known", err)
	}
}

// Every parameter is one number of its own, with words about it.
func TestParameters(t *testing.T) {
	var m Machine
	names := map[string]bool{}
	for i, p := range Parameters() {
		if err := p.Set(&m, float64(i+1)); err != nil {
			t.Error(err)
		}
		if names[p.Name] || p.Help == "" || strings.ContainsAny(p.Name, "_ A") {
			t.Errorf("parameter %q: twice, without help, or no name of a flag", p.Name)
		}
		names[p.Name] = true
	}
	for i, p := range Parameters() {
		if p.Get(&m) != float64(i+1) {
			t.Errorf("%s is %g, want %d: two parameters share a number", p.Name, p.Get(&m), i+1)
		}
	}
}

func TestParametersRefuse(t *testing.T) {
	good := Machines()[0]
	for _, p := range Parameters() {
		bad := []float64{-1, math.NaN(), math.Inf(1), 1e10}
		switch p.Name {
		case "nics":
			bad = append(bad, 0, 1.5)
		case "packet-factor":
			bad = append(bad, 0.5)
		case "nic-bandwidth", "link-bandwidth", "reduce-bandwidth":
			bad = append(bad, 0)
		}
		for _, v := range bad {
			m := good
			err := p.Set(&m, v)
			if !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), p.Name) || !strings.Contains(err.Error(), "expected") {
				t.Errorf("%s %g: %v: want an error that names it and says what was expected", p.Name, v, err)
			}
			if m != good {
				t.Errorf("%s %g was set all the same", p.Name, v)
			}
			*p.of(&m) = v
			if err := m.Validate(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "machine h100") {
				t.Errorf("machine with %s %g: %v", p.Name, v, err)
			}
		}
	}
}

// A rank has one adapter at most, and a share where there are too few.
func TestShareOfAdapters(t *testing.T) {
	m := Machine{NICs: 4, NICBandwidth: 50}
	for ranks, want := range map[int]float64{1: 50e3, 4: 50e3, 8: 25e3, 16: 12.5e3} {
		if got := m.nic(ranks); got != want {
			t.Errorf("%d ranks share 4 adapters of 50 GB/s: %g bytes/us each, want %g", ranks, got, want)
		}
	}
}

// Copy engines are used where they are faster, and never for packets.
func TestCostOfLinks(t *testing.T) {
	m := Machine{LinkBandwidth: 100, LinkLatency: 1, LinkOverhead: 0.5, CopyBandwidth: 200, CopyOverhead: 10}
	for _, c := range []struct {
		w              work
		occupies, late float64
	}{
		{work{on: onLink}, 0, 0},
		{work{on: onLink, sent: 100e3, messages: 1}, 1, 2},
		{work{on: onLink, sent: 100, messages: 7}, 3.5, 2},
		{work{on: onLink, sent: 1e3, received: 200e3, messages: 1}, 2, 2}, // the larger direction
		{work{on: onLink, sent: 8e6, messages: 1}, 50, 2},
		{work{on: onLink, sent: 8e6, messages: 1, packets: true}, 80, 1},
	} {
		if occupies, late := m.cost(c.w, 8); occupies != c.occupies || late != c.late {
			t.Errorf("%+v: %g and %g, want %g and %g", c.w, occupies, late, c.occupies, c.late)
		}
	}
}

func TestCostOfTheNetwork(t *testing.T) {
	m := Machine{NICs: 8, NICBandwidth: 50, NetworkLatency: 2, TriggerLatency: 3, MessageOverhead: 0.5, ReduceBandwidth: 1000}
	for _, c := range []struct {
		w              work
		occupies, late float64
	}{
		{work{on: onNetwork}, 0, 0},
		{work{on: onNetwork, sent: 100e3, messages: 1}, 2, 5},
		{work{on: onNetwork, sent: 100, messages: 31}, 15.5, 5}, // the time of posting
		{work{on: onReducer, sent: 3e6}, 3, 0},
	} {
		if occupies, late := m.cost(c.w, 8); occupies != c.occupies || late != c.late {
			t.Errorf("%+v: %g and %g, want %g and %g", c.w, occupies, late, c.occupies, c.late)
		}
	}
}
