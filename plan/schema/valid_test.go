package schema

import (
	"encoding/json"
	"os"
	"testing"
)

// texts are such as a walk over them may get wrong, and whether valid takes them at once.
var texts = map[string]bool{
	`{}`: true, ` [ ] `: true, `{"a": [1, -2, {"b": "c"}], "d": true, "e": null, "f": false}`: true, "[0]\n": true, `"text"`: true, `7`: true,
	``: false, ` `: false, `{`: false, `[`: false, `"`: false, `"a`: false, `[1,]`: false, `[,1]`: false, `{"a":1,}`: false, `{"a" 1}`: false, `{a:1}`: false, `{"a":}`: false,
	`[1] 2`: false, `[1}`: false, `{"a":1]`: false, `[01]`: false, `[-]`: false, `[--1]`: false, `[+1]`: false, `tru`: false, `truex`: false, `nul`: false, `[1 2]`: false, "[\x00]": false,
	"[1]\x00": false, "[\"\n\"]": false, `{"a"}`: false, `{:1}`: false, `[1`: false, `-`: false, "\xef\xbb\xbf{}": false,
	`[1.5]`: false, `[1e3]`: false, `["\n"]`: false, // JSON of which it leaves the decision
}

func TestValid(t *testing.T) {
	for text, want := range texts {
		if got := valid([]byte(text)); got != want {
			t.Errorf("%q: %v, expected %v", text, got, want)
		}
	}
	deep := make([]byte, 0, 1<<20)
	for range 1 << 20 {
		deep = append(deep, '[')
	}
	if valid(deep) {
		t.Error("brackets that nothing closes were taken")
	}
	every, err := os.ReadFile("testdata/every.json")
	if err != nil {
		t.Fatal(err)
	}
	if !valid(every) {
		t.Error("a plan with everything in it was not taken at once")
	}
}

// Each text that valid takes is JSON.
func FuzzValid(f *testing.F) {
	for text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if valid(data) && !json.Valid(data) {
			t.Errorf("%q was taken, and is no JSON", data)
		}
	})
}
