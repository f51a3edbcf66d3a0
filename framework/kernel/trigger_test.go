package kernel

import "testing"

// Packed fields are read again, up to the largest values, and never touch the ring's bit.
func TestTriggerFields(t *testing.T) {
	for _, f := range []TriggerFields{
		{},
		{Kind: TriggerData, Bytes: 1, From: 2, To: 3, Src: 4, Dst: 5, Slot: 6},
		{Kind: TriggerData | TriggerSignal | TriggerFlush, Bytes: 1<<32 - 1, From: 1<<32 - 1, To: 1<<32 - 1, Src: 511, Dst: 511, Slot: 1023},
	} {
		p := f.Pack()
		got := TriggerFields{p.Kind(), p.Bytes(), p.From(), p.To(), p.Src(), p.Dst(), p.Slot()}
		if got != f || p.Snd>>63 != 0 {
			t.Errorf("%+v became %+v (%#x)", f, got, p)
		}
	}
	if p := (TriggerFields{Kind: 8, Bytes: 1 << 32, To: 1 << 32, Src: 512, Dst: 512, Slot: 1024}).Pack(); p != (Trigger{}) {
		t.Errorf("fields that are too large became %#x, expected nothing", p)
	}
}
