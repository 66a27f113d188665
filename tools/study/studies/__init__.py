"""The studies. A file of this folder is all that one of them needs: STUDIES, a tuple of edge_study.EdgeStudy,
training.TrainingStudy or sweeps.Sweep, with its points, its model and its words. catalogue.py finds it."""
