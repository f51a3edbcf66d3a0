package plans

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/plan/schema"
	"github.com/mscclpp-go/mscclpp/plan/verify"
)

func check(env *verb.Env) *cobra.Command {
	var to string
	most := schema.DefaultLimits
	c := &cobra.Command{
		Use:   "check FILE…",
		Short: "say whether plans are right, without running them",
		Long: fmt.Sprintf(`Say of each plan whether it is right, right once, wrong, racing, hanging or refused, and why.
The exit code is 1 if one of them is not right. A file may have %d bytes (uncompressed),
%d ranks, %d blocks of a rank, %d operations of a block, %d elements in other
lists and %d chunks of a buffer.`, most.Bytes, most.Ranks, most.Blocks, most.Ops, most.List, most.Chunks),
		RunE: func(_ *cobra.Command, files []string) error {
			if len(files) == 0 {
				return verb.Usage("plan check: expected files")
			}
			if err := format("check", to); err != nil {
				return err
			}
			return checkAll(env.Stdout, files, to == "json")
		},
		Args: cobra.ArbitraryArgs,
	}
	c.Flags().StringVar(&to, "format", "table", "table, or json with one object a line")
	return c
}

func checkAll(w io.Writer, files []string, objects bool) error {
	right := true
	for _, file := range files {
		got := verify.File(file)
		right = right && got.Verdict == verify.Right
		if objects {
			encoder := json.NewEncoder(w)
			encoder.SetEscapeHTML(false)
			if err := encoder.Encode(got); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%s: %s: %s\n", got.File, got.Verdict, got.Reason)
		for _, note := range got.Notes {
			fmt.Fprintf(w, "\tnote: %s\n", note)
		}
	}
	if !right {
		return &verb.Error{Code: 1}
	}
	return nil
}
