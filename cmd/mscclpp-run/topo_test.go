package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestTopoVerb(t *testing.T) {
	code, out, errs := runs(command(t, "topo", "--format", "json"))
	if code != 0 || !json.Valid([]byte(out)) {
		t.Errorf("code %d, not JSON: %s, %s", code, out, errs)
	}
	if code, out, errs := runs(command(t, "topo")); code != 0 || len(strings.TrimSpace(out)) == 0 {
		t.Errorf("code %d, %q, %s", code, out, errs)
	}
	if code, out, errs := runs(command(t, "topo", "--record")); code != 0 || !strings.Contains(out, "cpu") {
		t.Errorf("code %d, %.200q, %s", code, out, errs)
	}
	if code, _, errs := runs(command(t, "topo", "--format", "dot")); code != 2 || !strings.Contains(errs, "expected table or json") {
		t.Errorf("code %d, %s", code, errs)
	}
}
