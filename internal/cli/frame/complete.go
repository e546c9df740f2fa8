package frame

import "github.com/spf13/cobra"

// The functions below say how a flag, which is defined already, is completed. Without one of them
// the shell offers names of files.

// CompleteFlag has a function offer the values of a flag.
func CompleteFlag(c *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // the flag was not defined before
	}
}

// CompleteValues has the shell offer the values of a flag; without values it offers nothing.
func CompleteValues(c *cobra.Command, flag string, values ...cobra.Completion) {
	CompleteFlag(c, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// CompleteDir has the shell offer folders.
func CompleteDir(c *cobra.Command, flag string) {
	CompleteFlag(c, flag, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs))
}

// CompleteFile has the shell offer files whose names end in one of the extensions, such as "yaml".
func CompleteFile(c *cobra.Command, flag string, extensions ...cobra.Completion) {
	CompleteFlag(c, flag, cobra.FixedCompletions(extensions, cobra.ShellCompDirectiveFilterFileExt))
}
