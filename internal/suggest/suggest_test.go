package suggest

import "testing"

func TestName(t *testing.T) {
	names := []string{"scratch", "deadline", "max_blocks", "oneshot_ll8", "oneshot_ll128", "ring", "spin_time", "queue_depth", "gid", "device"}
	for wrong, want := range map[string]string{
		"scrach": "scratch", "srcatch": "scratch", "MAX-BLOCKS": "max_blocks", "max block": "max_blocks",
		"onshot_ll8": "oneshot_ll8", "oneshot_ll126": "oneshot_ll128", "rign": "ring", "rin": "ring",
		"spintime": "spin_time", "Spin-Time": "spin_time", "qeue_depth": "queue_depth", "gdi": "gid", "devcie": "device",
		"": "", "bandwidth": "", "zzzzzz": "", "fast": "", "switch": "",
	} {
		if got := Name(wrong, names); got != want {
			t.Errorf("%q: %q, expected %q", wrong, got, want)
		}
	}
	if Name("a", nil) != "" || Hint("") != "" || Hint("ring") != ` (did you mean "ring"?)` {
		t.Errorf("%q, %q, %q", Name("a", nil), Hint(""), Hint("ring"))
	}
}
