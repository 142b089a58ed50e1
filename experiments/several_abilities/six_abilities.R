# mirt's MHRM on the data that `six_abilities.py --write FOLDER` wrote: seconds of the processor and the
# log-likelihood with its Monte Carlo error, one line for each model and seed.
#
#     Rscript experiments/several_abilities/six_abilities.R FOLDER [confirmatory|exploratory] [seed ...]

suppressMessages(library(mirt))
arguments <- commandArgs(trailingOnly = TRUE)
kind <- if (length(arguments) > 1) arguments[2] else "confirmatory"
seeds <- if (length(arguments) > 2) as.integer(arguments[-(1:2)]) else 1
x <- read.csv(file.path(arguments[1], "answers.csv"), header = FALSE)
dims <- 6
model <- dims
if (kind == "confirmatory") {
  items <- seq_len(ncol(x)) - 1
  lines <- sapply(seq_len(dims), function(d) {
    paste0("F", d, " = ", paste(which(items %% dims == d - 1), collapse = ","))
  })
  factors <- paste0("F", seq_len(dims), collapse = "*")
  model <- mirt.model(paste(c(lines, paste("COV =", factors)), collapse = "\n"))
}
for (seed in seeds) {
  set.seed(seed)
  seconds <- system.time(fit <- mirt(x, model, itemtype = "2PL", method = "MHRM", verbose = FALSE))
  cat(kind, as.character(packageVersion("mirt")), seed, sum(seconds[c("user.self", "sys.self")]),
      fit@Fit$logLik, fit@Fit$SElogLik,
      fit@OptimInfo$iter, fit@OptimInfo$converged, sep = ",")
  cat("\n")
}
