package sizes

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "8": 8, "1K": 1 << 10, "1k": 1 << 10, "16M": 16 << 20, "1G": 1 << 30, "2T": 2 << 40,
		"4KiB": 4 << 10, "4kb": 4 << 10, "12B": 12, " 7 ": 7, "8388607T": 8388607 << 40,
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("Parse(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "K", "-1", "+1", "1.5M", "1Q", "1KK", "0x10", "8388608T", "9223372036854775808", "1I", "1iB", "KiB", "1 K K"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("Parse(%q) = %d, want an error", text, got)
		} else if !strings.Contains(err.Error(), text) {
			t.Errorf("Parse(%q): the error does not quote the input: %v", text, err)
		}
	}
}

func TestFormatIsTheInverse(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 1: "1", 1023: "1023", 1024: "1K", 1536: "1536", 3 << 20: "3M", 1 << 30: "1G", 5 << 40: "5T"} {
		if got := Format(n); got != want {
			t.Errorf("Format(%d) = %q, want %q", n, got, want)
		}
		if back, err := Parse(Format(n)); err != nil || back != n {
			t.Errorf("Parse(Format(%d)) = %d, %v", n, back, err)
		}
	}
}

func TestRange(t *testing.T) {
	for _, c := range []struct {
		text   string
		factor int64
		want   []int64
	}{
		{"1K:16K", 4, []int64{1024, 4096, 16384}},
		{"1K:15K", 4, []int64{1024, 4096}},
		{"64", 2, []int64{64}},
		{"0", 2, []int64{0}},
		{"3:24", 2, []int64{3, 6, 12, 24}},
		{"4611686018427387904:9223372036854775807", 2, []int64{1 << 62}},
	} {
		r, err := ParseRange(c.text, c.factor)
		if err != nil {
			t.Errorf("ParseRange(%q): %v", c.text, err)
		} else if got := r.List(); !slices.Equal(got, c.want) {
			t.Errorf("%q by %d = %v, want %v", c.text, c.factor, got, c.want)
		}
	}
	for _, bad := range []string{"2K:1K", "0:1K", "1K:", ":1K", "1K:2K:3K"} {
		if r, err := ParseRange(bad, 2); err == nil {
			t.Errorf("ParseRange(%q) = %v, want an error", bad, r)
		}
	}
	if _, err := ParseRange("1:2", 1); err == nil {
		t.Error("a factor of 1 never ends and was accepted")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("1K")
	f.Add("8388608T")
	f.Add("iB")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := Parse(text)
		if err != nil {
			return
		}
		if n < 0 {
			t.Fatalf("Parse(%q) = %d", text, n)
		}
		if back, err := Parse(Format(n)); err != nil || back != n {
			t.Fatalf("Parse(%q) = %d, which prints as %q", text, n, Format(n))
		}
	})
}

func TestList(t *testing.T) {
	for text, want := range map[string][]int64{
		"64": {64}, "1K:16K": {1024, 4096, 16384}, "3,1M, 7": {3, 1 << 20, 7}, "8,1K:4K": {8, 1024, 4096},
	} {
		if got, err := ParseList(text, 4); err != nil || !slices.Equal(got, want) {
			t.Errorf("ParseList(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "1K,", ",1K", "1K,,2K", "1K,many", "1K,4K:2K"} {
		if got, err := ParseList(bad, 4); err == nil {
			t.Errorf("ParseList(%q) = %v, want an error", bad, got)
		}
	}
}

func TestSizesThatAreTooLarge(t *testing.T) {
	for _, text := range []string{"8388608T", "9223372036854775808", "99999999999999999999G"} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), "too large") {
			t.Errorf("Parse(%q): %v: expected that it is too large", text, err)
		}
	}
}
