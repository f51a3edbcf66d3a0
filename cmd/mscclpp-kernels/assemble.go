package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

// assembleCommand makes machine code of PTX.
func assembleCommand() *cobra.Command {
	var a image.Assembly
	c := &cobra.Command{
		Use:   "assemble --images DIR --ptxas PATH",
		Short: "Make machine code of images for NVIDIA's GPUs, and hold the registers of their kernels against a table",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			a.Progress = progress(c)
			done, err := image.Assemble(c.Context(), a)
			if err != nil {
				return err
			}
			for _, d := range done {
				text := fmt.Sprintf("%s: machine code of %d images, %d of them assembled now", d.Chip, d.Images, d.Made)
				if d.File != "" {
					text += fmt.Sprintf("; %s has %d bytes", d.File, d.Bytes)
				}
				fmt.Fprintln(c.OutOrStdout(), text)
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringArrayVar(&a.Images, "images", nil, "folder of PTX images and their manifest.json; may be given several times")
	f.StringSliceVar(&a.Except, "except", nil, "families to leave out")
	f.StringSliceVar(&a.Types, "types", nil, "types whose images are assembled, beside those for no type (default: all)")
	f.StringSliceVar(&a.Chips, "chips", nil, "chips, separated by commas (default sm_80,sm_90,sm_100,sm_103,sm_120)")
	f.StringVar(&a.Assembler, "ptxas", "", "NVIDIA's assembler (default ptxas on the path)")
	f.StringVar(&a.Out, "out", "", "where the containers are written, without chip and ending: PLUGINS/NAME; none: registers are compared, and nothing is written")
	f.StringVar(&a.Store, "store", "", "folder in which machine code is kept by all that decides its bytes")
	f.IntVarP(&a.Jobs, "jobs", "j", 0, "assemblers at once (default: one a CPU)")
	f.StringVar(&a.Table, "table", "", "name of the tables of registers beside the manifests (default registers.txt)")
	f.BoolVar(&a.Record, "record", false, "write the tables of registers instead of comparing with them")
	_ = c.MarkFlagRequired("images") // fails only for a flag that does not exist
	return c
}
