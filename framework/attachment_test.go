package framework

import (
	"errors"
	"os"
	"testing"
)

func TestAttachmentClose(t *testing.T) {
	a, b, c := file(t, "a"), file(t, "b"), file(t, "c")
	att := Attachment{
		Mappings: []Mapping{{Shares: []Share{a, {Kind: ShareLegacyIPC, Blob: []byte{1}}}}, {Shares: []Share{b}}},
		Steps:    []Step{{Op: StepMap}, {Op: StepBind, Share: &c}, {Op: StepBarrier}},
	}
	if err := att.Close(); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]Share{"first mapping": a, "second mapping": b, "step": c} {
		if !closed(s.FD) {
			t.Errorf("the descriptor of the %s is still open", name)
		}
	}
}

func TestAttachmentCloseAfterError(t *testing.T) {
	a, b := file(t, "a"), file(t, "b")
	a.FD.Close()
	att := Attachment{Mappings: []Mapping{{Shares: []Share{a}}}, Steps: []Step{{Op: StepBind, Share: &b}}}
	if err := att.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Close() = %v, want the first error", err)
	}
	if !closed(b.FD) {
		t.Error("an error kept a later descriptor open")
	}
}

func TestEmptyAttachmentCloses(t *testing.T) {
	if err := (Attachment{}).Close(); err != nil {
		t.Errorf("Close() of nothing: %v", err)
	}
}
