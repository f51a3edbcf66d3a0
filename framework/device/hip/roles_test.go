package hip

import "fmt"

// roles are what processes do that a test starts.
var roles = map[string]func() error{
	"count": func() error {
		n, err := Count()
		if err == nil {
			fmt.Print(n)
		}
		return err
	},
}
