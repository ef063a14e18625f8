complete --command tpumon --no-files --arguments "(env _TPUMON_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args _TYPER_COMPLETE_ARGS=(commandline -cp) tpumon)" --condition "env _TPUMON_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=is-args _TYPER_COMPLETE_ARGS=(commandline -cp) tpumon"
complete --command capture_tpu_profile --wraps tpumon
