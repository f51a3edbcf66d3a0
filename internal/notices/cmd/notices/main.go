// Command notices prints the notices of the module in the working folder.
package main

import (
	"fmt"
	"os"

	"github.com/mscclpp-go/mscclpp/internal/notices"
)

func main() {
	if err := notices.Write(os.Stdout, "."); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}
