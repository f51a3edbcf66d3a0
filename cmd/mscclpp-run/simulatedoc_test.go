package main

import (
	"strings"
	"testing"
)

// The tables of docs/scaling.md are the program's present output.
func TestScalingDocument(t *testing.T) {
	text := read(t, "../../docs/scaling.md")
	const prompt = "$ mscclpp-run simulate"
	shown := 0
	for _, block := range strings.Split(text, "```console\n")[1:] {
		block, _, closed := strings.Cut(block, "```")
		line, want, _ := strings.Cut(block, "\n")
		args, ours := strings.CutPrefix(line, prompt)
		if !closed || !ours {
			t.Errorf("a block begins with %q: expected %q and its output", line, prompt)
			continue
		}
		shown++
		code, got, errs := runs(command(t, append([]string{"simulate"}, strings.Fields(args)...)...))
		if code != 0 || got != want {
			t.Errorf("%s: code %d, %s\nprints\n%s\nthe document has\n%s", line, code, errs, got, want)
		}
	}
	if shown < 7 {
		t.Errorf("%d outputs in the document, expected 7 or more", shown)
	}
}

// The commands at its end are right as well, and so is the file.
func TestScalingDocumentUse(t *testing.T) {
	text := read(t, "../../docs/scaling.md")
	_, file, found := strings.Cut(text, "```yaml\n")
	file, _, closed := strings.Cut(file, "```")
	if !found || !closed {
		t.Fatal("the document has no example of a machine")
	}
	dir := t.TempDir()
	commands := 0
	for line := range strings.Lines(text) {
		args, ours := strings.CutPrefix(strings.TrimSpace(line), "mscclpp-run simulate")
		if !ours {
			continue
		}
		commands++
		args, _, _ = strings.Cut(args, "#")
		args = strings.ReplaceAll(args, "cluster.yaml", machineFile(t, file))
		args = strings.ReplaceAll(args, "out.svg", dir+"/out.svg")
		if code, out, errs := runs(command(t, append([]string{"simulate"}, strings.Fields(args)...)...)); code != 0 || out == "" {
			t.Errorf("%s: code %d, %s", line, code, errs)
		}
	}
	if commands != 5 || !strings.Contains(read(t, dir+"/out.svg"), "allreduce on my cluster") {
		t.Errorf("%d commands, expected 5, the last with a drawing for the machine of the example", commands)
	}
}
